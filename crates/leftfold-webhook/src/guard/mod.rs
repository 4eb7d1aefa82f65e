//! The addresses that a webhook may connect to.

mod address;

pub(crate) use self::address::Resolver;
pub use self::address::{AddressGuard, Refused};
