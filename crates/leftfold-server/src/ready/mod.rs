//! Readiness: whether requests can be served, and which parts are degraded.

mod readiness;
mod watch;

pub use self::readiness::{Readiness, WatchedFeed};
pub(crate) use self::readiness::{Trouble, TroubleKind};
pub(crate) use self::watch::watch;
