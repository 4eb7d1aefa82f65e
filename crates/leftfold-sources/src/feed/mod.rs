//! From a source to the log: receive, map, ingest, and only then acknowledge.
//!
//! A feed acknowledges a message when its outcome is durable: appended to the log, held, recorded
//! as a conflict, or recorded as rejected. All other messages are redelivered. One bad message
//! blocks no other.

mod batch;
mod handle;
mod pauses;
mod task;

pub use self::handle::{FeedCounts, Handle};
pub use self::task::Feed;
