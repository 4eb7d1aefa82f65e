#![doc = include_str!("../README.md")]
//!
//! # Example: from a source into the log
//!
//! ```
//! use leftfold::{Memory, Policy, Sequencer};
//! use leftfold_sources::{Feed, Mapping, Message, Source};
//!
//! # /// One message, and then no more.
//! # struct Orders(Option<Message>);
//! #
//! # impl Source for Orders {
//! #     type Receipt = ();
//! #     fn name(&self) -> &str { "orders" }
//! #     async fn receive(&mut self, _: usize) -> leftfold::Result<Vec<(Message, ())>> {
//! #         Ok(self.0.take().into_iter().map(|message| (message, ())).collect())
//! #     }
//! #     async fn acknowledge(&mut self, _: Vec<()>) -> leftfold::Result<()> { Ok(()) }
//! #     async fn refuse(&mut self, _: Vec<()>, _: std::time::Duration) -> leftfold::Result<()> { Ok(()) }
//! # }
//! #
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> leftfold::Result<()> {
//! # let event = r#"{"specversion":"1.0","id":"1","source":"/shop","type":"paid","subject":"order-1","sequence":"1"}"#;
//! # let orders = Orders(Some(Message::new(event)));
//! # let (_stop, stopped) = tokio::sync::watch::channel(false);
//! // `orders` is a source, such as `redis::Redis`.
//! let feed = Feed::new(orders, Sequencer::new(Memory::default()), Mapping::default(), Policy::Contiguous);
//! let handle = feed.handle();
//! feed.run(stopped).await?;
//! assert_eq!(handle.counts().acknowledged, 1);
//! # Ok(())
//! # }
//! ```

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
