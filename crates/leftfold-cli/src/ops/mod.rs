//! Looking after read models: what a worker's owner types.

mod explain;
mod get;
mod parked;
mod refold;
mod status;

pub(crate) use explain::explain;
pub(crate) use get::get;
pub(crate) use parked::{list_parked, retry_parked};
pub(crate) use refold::refold;
pub(crate) use status::status;
