//! The interface of a broker.

use std::future::Future;
use std::time::Duration;

use leftfold::Result;

use crate::message::Message;

/// A source of messages: one consumer of a broker's queue, subscription or topic.
///
/// A [`Feed`](crate::Feed) calls it from one task, and settles every receipt before it receives
/// more. If the process ends, a receipt may be neither acknowledged nor refused. Its message must
/// then be delivered again.
///
/// # Example: the lines of a file
///
/// ```
#[doc = include_str!("../examples/lines.rs")]
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no source of messages",
    note = "implement `receive`, `acknowledge` and `refuse`; each may be an `async fn`"
)]
pub trait Source: Send + 'static {
    /// Identifies a message to the broker.
    type Receipt: Send;

    /// Returns the name that operators see, for example beside rejected messages.
    fn name(&self) -> &str;

    /// Checks that the source can be read, without consuming or creating anything. The default does
    /// nothing.
    fn check(&mut self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Waits for at least one message, and returns at most `most`. An empty result means that there
    /// will never be more.
    ///
    /// The call is cancel-safe: messages in transit come with the next call, or again from the
    /// broker. The feed retries an error that [is transient](leftfold::Error::is_transient), so the
    /// source must reconnect if needed. Any other error ends the feed.
    fn receive(&mut self, most: usize) -> impl Future<Output = Result<Vec<(Message, Self::Receipt)>>> + Send;

    /// Acknowledges messages that are safe, so that the broker may delete them. If it fails they
    /// are delivered again, which is harmless.
    fn acknowledge(&mut self, receipts: Vec<Self::Receipt>) -> impl Future<Output = Result<()>> + Send;

    /// Refuses messages. The source delivers them again, but not before `after` has passed.
    fn refuse(
        &mut self,
        receipts: Vec<Self::Receipt>,
        after: Duration,
    ) -> impl Future<Output = Result<()>> + Send;
}
