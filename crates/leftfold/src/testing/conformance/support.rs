//! Values and waits that all cases share.

use std::future::Future;
use std::time::Duration;

use jiff::Timestamp;

use crate::event::{Bookmark, EventId, EventKind, StreamId};
use crate::json::Json;
use crate::log::{Entry, Expected};
use crate::store::Store;

/// Fails if the future takes far longer than it ever should.
pub(super) async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("it should long have happened")
}

/// Returns whether the future is still pending after a moment.
pub(super) async fn waits(future: impl Future) -> bool {
    tokio::time::timeout(Duration::from_millis(30), future).await.is_err()
}

pub(super) fn stream(name: &str) -> StreamId {
    StreamId::new(name).unwrap()
}

pub(super) fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

/// Creates an event whose data is its id.
pub(super) fn entry(id: &str) -> Entry {
    Entry {
        id: EventId::new(id).unwrap(),
        kind: EventKind::new("happened").unwrap(),
        time: Timestamp::from_microsecond(1_700_000_000_123_456).unwrap(),
        data: Json::of(&id).unwrap(),
        metadata: None,
    }
}

/// Appends one event at any revision.
pub(super) async fn append(store: &impl Store, name: &str, id: &str) -> Bookmark {
    store.append(stream(name), Expected::Any, vec![entry(id)]).await.unwrap().into_bookmark()
}
