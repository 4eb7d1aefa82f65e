//! Held events: those that arrived before their predecessors.

use std::sync::Arc;

use jiff::Timestamp;

use crate::event::{Event, EventId, Revision, StreamId};
use crate::log::{Entry, Limit};

/// An event that arrived before its predecessor.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// Its stream.
    pub stream: StreamId,
    /// Its revision.
    pub revision: Revision,
    /// The revision that must be in the log before it.
    pub previous: Revision,
    /// The time at which it arrived.
    pub since: Timestamp,
    /// The event itself.
    pub entry: Arc<Entry>,
}

impl Held {
    /// Returns its size as counted against the limits.
    pub fn bytes(&self) -> u64 {
        held_bytes(&self.entry)
    }
}

/// Returns the size of an event as counted against the limits.
pub(crate) fn held_bytes(entry: &Entry) -> u64 {
    const REST: usize = 128;
    let metadata = entry.metadata.as_ref().map_or(0, |metadata| metadata.as_str().len());
    (entry.data.as_str().len() + metadata + REST) as u64
}

/// Held events of a stream, by revision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeldPage {
    /// The lowest held events.
    pub held: Vec<Held>,
    /// `true` if more events follow.
    pub more: bool,
}

impl HeldPage {
    /// Takes as many events as fit the limit, at least two, and reduces the limit. The last event
    /// of a cut page only tells where to continue.
    pub fn cut(held: impl Iterator<Item = Held>, limit: &mut Limit) -> Self {
        let mut page = Self::default();
        for held in held {
            let bytes = usize::try_from(held.bytes()).unwrap_or(usize::MAX);
            if page.held.len() >= 2 && (limit.events == 0 || limit.bytes < bytes) {
                page.more = true;
                break;
            }
            limit.events = limit.events.saturating_sub(1);
            limit.bytes = limit.bytes.saturating_sub(bytes);
            page.held.push(held);
        }
        page
    }
}

/// A request for events.
#[derive(Clone, Debug, Default)]
pub struct WantedEvents {
    /// Streams and revisions of logged or held events.
    pub places: Vec<(StreamId, Revision)>,
    /// Ids of logged events.
    pub ids: Vec<EventId>,
}

impl WantedEvents {
    /// Returns whether the request is empty.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty() && self.ids.is_empty()
    }
}

/// The events that were found, in any order.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Events in the log.
    pub logged: Vec<Event>,
    /// Held events.
    pub held: Vec<Held>,
}
