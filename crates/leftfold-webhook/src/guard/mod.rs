//! The addresses that a webhook may connect to.
//!
//! Without this check, a webhook's URL could make this process call services that only it can
//! reach: on its own machine and network, or a cloud's metadata. A name is resolved on each
//! connect, and only checked addresses are connected to.

mod address;
mod reserved;
mod resolver;
#[cfg(test)]
mod tests;

pub use self::address::{AddressGuard, Refused};
pub(crate) use self::resolver::Resolver;
