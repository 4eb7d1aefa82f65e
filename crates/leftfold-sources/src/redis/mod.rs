//! Redis Streams: one consumer of a group.
//!
//! Messages that were read and not acknowledged stay in the group's pending list. A consumer that
//! restarts reads its own pending entries again, and takes over entries that others have left there
//! for too long. So a consumer must keep its name across restarts, and no two consumers may use the
//! same name at the same time.

mod consumer;
mod reply;

pub use self::consumer::Redis;
