//! What a broker must be able to do.

use std::future::Future;
use std::time::Duration;

use leftfold::Result;

use crate::message::Message;

/// Where messages come from: a broker's queue, subscription or topic, at one consumer.
///
/// A [`Feed`](crate::Feed) calls it from one task, and answers for every receipt before it asks for more. A receipt that is
/// neither acknowledged nor refused, because the process ended, belongs to a message that must be brought again.
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
    /// What tells the broker which message is meant.
    type Receipt: Send;

    /// How operators know it: it stands beside what was rejected.
    fn name(&self) -> &str;

    /// Whether it can be read from, as far as that can be told without taking or making anything there: for those who look before they
    /// start. By default it is not tried.
    fn check(&mut self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Waits for at least one message, and brings at most so many. An empty answer says that there will never be more.
    ///
    /// Cancelling it loses nothing: what was under way comes with the next call, or from the broker again. An error that
    /// [is transient](leftfold::Error::is_transient) is tried again, connecting anew if need be; any other ends the feed.
    fn receive(&mut self, most: usize) -> impl Future<Output = Result<Vec<(Message, Self::Receipt)>>> + Send;

    /// These are safe: the broker may forget them. If it fails they come again, which is harmless.
    fn acknowledge(&mut self, receipts: Vec<Self::Receipt>) -> impl Future<Output = Result<()>> + Send;

    /// These are to come again, but not before so much time has passed.
    fn refuse(
        &mut self,
        receipts: Vec<Self::Receipt>,
        after: Duration,
    ) -> impl Future<Output = Result<()>> + Send;
}
