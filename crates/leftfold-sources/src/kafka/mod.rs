//! Kafka: a member of a consumer group that commits offsets after ingest.
//!
//! A group's place in a partition is one number, so it only advances to the first message that is
//! not safe yet. If a message is refused, its partition pauses and is then read again from there.
//! Messages behind it that were ingested already are delivered twice, which is harmless. Other
//! partitions continue meanwhile.

mod consumer;
mod context;
mod message;
mod partition;

pub use self::consumer::{Kafka, Receipt};

/// A topic and a partition of it.
type TopicPartition = (String, i32);
