//! The call of a webhook, as a handler of a reaction.

mod call;
#[cfg(test)]
mod tests;

pub use self::call::{Webhook, usual_retry};
