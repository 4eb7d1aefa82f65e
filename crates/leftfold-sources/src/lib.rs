#![doc = include_str!("../README.md")]

mod feed;
#[cfg(feature = "http")]
pub mod http;
mod intake;
#[cfg(feature = "kafka")]
pub mod kafka;
mod mapping;
mod message;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(feature = "redis")]
pub mod redis;
mod resubmit;
mod source;

pub use feed::{Feed, FeedCounts, Handle};
pub use mapping::{CloudEvents, FieldMapping, Mapping, Place, Pointer};
pub use message::Message;
pub use resubmit::{Resubmitted, resubmit};
pub use source::Source;
