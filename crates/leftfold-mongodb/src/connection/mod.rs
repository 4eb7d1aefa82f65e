//! The connection to the servers: its properties, transactions and bulk writes.

pub(crate) mod bulk;
pub(crate) mod transaction;
