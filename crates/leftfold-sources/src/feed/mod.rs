//! From a source to the log: receive, map, ingest, and only then acknowledge.

mod task;

pub use self::task::{Feed, FeedCounts, Handle};
