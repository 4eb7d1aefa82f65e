//! The connection to the servers: its properties, transactions and bulk writes.

mod base;
pub(crate) mod bulk;
mod catch_up;
mod open;
mod query;
mod transaction;

pub(crate) use self::base::{Base, Network, no_transactions, with_timeout};
pub(crate) use self::open::connect;
pub(crate) use self::query::{MAX_IDS, batch};
pub(crate) use self::transaction::{Ended, Step, Work};
