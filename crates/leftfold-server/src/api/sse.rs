//! Server-sent events. The id of each message resumes exactly after that message.
//!
//! A stream holds one page of events and one message at a time. The connection asks for the next
//! message when it has written the last one. So a client that does not read costs only what its
//! stream was charged.

use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use leftfold::Event;
use leftfold::budget::{Share, Use};
use leftfold::log::Limit;
use tokio::time::timeout;

use super::streams::Shown;
use super::{Answer, with_type};
use crate::problem::Problem;
use crate::{Backend, Shared};

/// The page of events that a stream reads at a time.
pub(super) const PAGE: Limit = Limit { events: 500, bytes: 64 << 10 };
/// The charge for a stream: its page, and the buffers of its connection.
const CHARGE: usize = 160 << 10;
/// The interval of heartbeats on a silent stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The time before clients reconnect, in milliseconds.
const RETRY: u32 = 1_000;

/// A source of messages.
pub(super) trait Feed: Send + 'static {
    /// Returns the next message, or the next place, when there is one.
    fn next(&mut self) -> impl Future<Output = Result<FeedStep, Problem>> + Send;
}

/// A step of a feed.
pub(super) enum FeedStep {
    /// A message, and the place after it.
    Message { place: String, kind: String, data: String },
    /// The feed advanced to this place without a message.
    Moved { place: String },
}

impl FeedStep {
    /// Creates the message of an event in the log.
    pub(super) fn event(place: String, event: &Event) -> Result<Self, Problem> {
        let data = serde_json::to_string(&Shown::from(event));
        let data = data.map_err(|error| Problem::failed(format!("serializing an event: {error}")))?;
        Ok(Self::Message { place, kind: event.kind.to_string(), data })
    }
}

/// Returns whether a client asks for server-sent events.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    headers.get(ACCEPT).is_some_and(|accepts| accepts.as_bytes().starts_with(b"text/event-stream"))
}

/// Returns the place that a client resumes from.
pub(super) fn last_event_id(headers: &HeaderMap) -> Option<String> {
    headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned)
}

/// Responds with all messages of a feed from a place on, until the client disconnects, the server
/// stops or the store fails. The client then reconnects and resumes.
pub(super) fn respond<S: Backend>(shared: Shared<S>, place: String, feed: impl Feed) -> Answer {
    let share = shared.budget.try_take(Use::Stream, CHARGE)?;
    let steps = stream::unfold(feed, |mut feed| async move {
        match feed.next().await {
            Ok(step) => Some((step, feed)),
            Err(problem) => {
                tracing::debug!(?problem, "an event stream ended");
                None
            }
        }
    });
    // The first message names the place: a client that is cut off before the next one resumes
    // there.
    let first = format!("retry: {RETRY}\n{}", heartbeat(&place));
    let following = Following { shared, steps: Box::pin(steps), place, share };
    let rest = stream::unfold(following, |mut following| async move {
        let text = following.next().await?;
        Some((text, following))
    });
    let texts = stream::iter([first]).chain(rest);
    let body = Body::from_stream(texts.map(|text| Ok::<_, std::convert::Infallible>(Bytes::from(text))));
    Ok(with_type(body, "text/event-stream"))
}

struct Following<S: Backend> {
    shared: Shared<S>,
    steps: Pin<Box<dyn Stream<Item = FeedStep> + Send>>,
    place: String,
    share: Share,
}

impl<S: Backend> Following<S> {
    /// Returns the text of the next message, or `None` at the end of the stream.
    async fn next(&mut self) -> Option<String> {
        // The previous message is written.
        self.share.resize(CHARGE).ok()?;
        loop {
            let step = tokio::select! {
                biased;
                () = self.shared.stopping() => return None,
                step = timeout(HEARTBEAT, self.steps.next()) => step,
            };
            let text = match step {
                Err(_) => heartbeat(&self.place),
                Ok(None) => return None,
                Ok(Some(FeedStep::Moved { place })) => {
                    self.place = place;
                    continue;
                }
                Ok(Some(FeedStep::Message { place, kind, data })) => {
                    let text = message(&place, &kind, &data);
                    self.place = place;
                    text
                }
            };
            if let Err(exhausted) = self.share.resize(CHARGE + text.len()) {
                tracing::debug!(%exhausted, "closing an event stream: the memory budget is exhausted");
                return None;
            }
            return Some(text);
        }
    }
}

fn heartbeat(place: &str) -> String {
    message(place, "leftfold-heartbeat", "{}")
}

/// Formats a message. Its data is JSON, in which a line break becomes a space.
fn message(place: &str, kind: &str, data: &str) -> String {
    let mut text = String::with_capacity(data.len() + kind.len() + place.len() + 32);
    text.push_str("event: ");
    text.push_str(kind);
    text.push_str("\nid: ");
    text.push_str(place);
    text.push_str("\ndata: ");
    if data.contains('\n') || data.contains('\r') {
        text.push_str(&data.replace(['\r', '\n'], " "));
    } else {
        text.push_str(data);
    }
    text.push_str("\n\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_block_whatever_its_data_is() {
        let text = message("17-3", "cart-opened", "{\r\n  \"a\": 1\n}");
        assert_eq!(text, "event: cart-opened\nid: 17-3\ndata: {    \"a\": 1 }\n\n");
    }
}
