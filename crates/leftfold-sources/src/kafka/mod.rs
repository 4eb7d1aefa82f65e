//! Kafka: a member of a consumer group that commits offsets after ingest.

mod consumer;

pub use self::consumer::{Kafka, Receipt};
