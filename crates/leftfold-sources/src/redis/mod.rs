//! Redis Streams: one consumer of a group.

mod consumer;

pub use self::consumer::Redis;
