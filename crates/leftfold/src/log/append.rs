//! The log: each stream in order, each event once.
//!
//! Reading and appending are two traits, so that a feed which is itself replayable and ordered can
//! be read without a copy.

use std::collections::HashSet;
use std::future::Future;

use jiff::Timestamp;

use crate::error::{Error, Invalid, Result};
use crate::event::{Bookmark, Event, EventId, EventKind, Partition, Position, Revision, StreamId};
use crate::json::Json;
use crate::mark::Mark;

/// The size limit of a read. It ends at whichever bound it reaches first, but always returns one
/// event if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The maximum number of events.
    pub events: usize,
    /// The maximum number of bytes of data and metadata.
    pub bytes: usize,
}

impl Default for Limit {
    fn default() -> Self {
        Self { events: 10_000, bytes: 1 << 20 }
    }
}

/// A page of a partition, in order.
#[derive(Clone, Debug, Default)]
pub struct LogPage {
    /// The events.
    pub events: Vec<Event>,
    /// The position up to which everything has been read. No event will ever appear at or before it
    /// that is not in this page or an earlier one.
    pub through: Position,
    /// `true` if the limit ended the page, so that there is more to read at once.
    pub more: bool,
}

/// The reading half of a log.
///
/// **Nothing is ever skipped**: a reader that has read a partition up to a position never finds a
/// new event at or behind it.
pub trait Log: Send + Sync + 'static {
    /// Returns the number of partitions, which is fixed when the log is created.
    fn partitions(&self) -> u16;

    /// Returns the last position of each partition.
    fn heads(&self) -> impl Future<Output = Result<Mark>> + Send;

    /// Returns the events of a partition after a position, in order.
    fn read(
        &self,
        partition: Partition,
        after: Position,
        limit: Limit,
    ) -> impl Future<Output = Result<LogPage>> + Send;

    /// Returns the events of a stream after a revision, in order. Only the limit cuts the result
    /// short.
    fn read_stream(
        &self,
        stream: &StreamId,
        after: Revision,
        limit: Limit,
    ) -> impl Future<Output = Result<Vec<Event>>> + Send;

    /// Waits until some partition's head is beyond this mark. An idle wait costs close to nothing.
    fn grown(&self, beyond: &Mark) -> impl Future<Output = Result<()>> + Send;
}

/// The revision a stream must have for an append to be accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expected {
    /// Any revision.
    #[default]
    Any,
    /// Exactly this revision; 0 for a stream that does not exist yet.
    Revision(Revision),
}

impl Expected {
    /// The expectation that the stream does not exist yet.
    pub const NONE: Self = Self::Revision(Revision(0));
}

impl From<Revision> for Expected {
    fn from(revision: Revision) -> Self {
        Self::Revision(revision)
    }
}

/// An event ready to be appended: complete except for its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The id of the event.
    pub id: EventId,
    /// The type of the event.
    pub kind: EventKind,
    /// The time when it happened, to the microsecond.
    pub time: Timestamp,
    /// The event's data.
    pub data: Json,
    /// The event's metadata.
    pub metadata: Option<Json>,
}

impl Entry {
    /// Returns whether a stored event is this one: same type, data and metadata. The time may
    /// differ, because a repeated append gets a new one.
    pub fn is(&self, stored: &Event) -> bool {
        let same = |a: &Option<Json>, b: &Option<Json>| match (a, b) {
            (Some(a), Some(b)) => a.same_as(b),
            (None, None) => true,
            _ => false,
        };
        self.kind == stored.kind && self.data.same_as(&stored.data) && same(&self.metadata, &stored.metadata)
    }
}

/// The result of an append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Appended {
    /// The events are in the log, durably.
    New(Bookmark),
    /// The events were already in the log: this append, or an identical one, succeeded before.
    Duplicate(Bookmark),
}

impl Appended {
    /// Returns the bookmark of the last event.
    pub fn into_bookmark(self) -> Bookmark {
        match self {
            Self::New(bookmark) | Self::Duplicate(bookmark) => bookmark,
        }
    }
}

/// The reason why an append was rejected. Nothing was written, unless [`Error::is_unknown`] holds.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// Another writer appended first.
    #[error(
        "stream {stream} is at revision {actual}, not at {expected} as this append expects; \
         read what came in between and decide again"
    )]
    WrongRevision {
        /// The stream.
        stream: StreamId,
        /// The revision the append expected.
        expected: Revision,
        /// The current revision of the stream.
        actual: Revision,
    },
    /// Another event has the same id.
    #[error(
        "event id {id} belongs to revision {} of stream {}, whose content differs from this event's; \
         give a new event a new id, and repeat an append as it was",
        stored.revision, stored.stream
    )]
    IdTaken {
        /// The id.
        id: EventId,
        /// The event that has it.
        stored: Bookmark,
    },
    /// Some of the events are already in the log but others are not, or they are not consecutive.
    #[error(
        "event {id} is in the log already, at revision {} of stream {}, but this append as a whole is not; \
         repeat an append with the same events in the same order",
        stored.revision, stored.stream
    )]
    PartlyThere {
        /// The first id that is already in the log.
        id: EventId,
        /// The position of that event.
        stored: Bookmark,
    },
    /// The input is invalid.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Error),
}

/// The writing half of a log.
pub trait Append: Log {
    /// Appends all events to one stream, or none.
    ///
    /// An append is a repetition if its event ids are all in the stream already, consecutive and
    /// with the same content. It then returns [`Appended::Duplicate`] whatever revision it expects.
    /// Appends of concurrent callers share a commit.
    fn append(
        &self,
        stream: StreamId,
        expected: Expected,
        entries: Vec<Entry>,
    ) -> impl Future<Output = Result<Appended, AppendError>> + Send;
}

/// Decides about an append from what the log has stored. Pure, so that all logs decide alike.
///
/// `stored` has, for each entry, the event with its id, if any; `current` is the stream's revision.
/// `Ok(Some(bookmark))` means that the append was done before and ended there. `Ok(None)` means
/// that it may proceed.
pub fn judge_append(
    stream: &StreamId,
    expected: Expected,
    entries: &[Entry],
    stored: &[Option<Event>],
    current: Revision,
) -> Result<Option<Bookmark>, AppendError> {
    let found = entries.iter().zip(stored).filter_map(|(entry, stored)| Some((entry, stored.as_ref()?)));
    let mut first = None;
    for (entry, event) in found {
        if event.stream != *stream || !entry.is(event) {
            return Err(AppendError::IdTaken { id: entry.id.clone(), stored: event.bookmark() });
        }
        first.get_or_insert(event);
    }
    if let Some(first) = first {
        let in_a_row = stored
            .iter()
            .zip(first.revision.0..)
            .all(|(stored, revision)| stored.as_ref().is_some_and(|event| event.revision.0 == revision));
        return match stored.last() {
            Some(Some(last)) if in_a_row => Ok(Some(last.bookmark())),
            _ => Err(AppendError::PartlyThere { id: first.id.clone(), stored: first.bookmark() }),
        };
    }
    match expected {
        Expected::Revision(expected) if expected != current => {
            Err(AppendError::WrongRevision { stream: stream.clone(), expected, actual: current })
        }
        _ => Ok(None),
    }
}

/// The default limit for the data, or metadata, of an event: 1 MiB.
pub const MAX_EVENT_BYTES: usize = 1 << 20;

/// The maximum number of events in one append.
pub const MAX_EVENTS: usize = 10_000;

/// Rejects events that no log may accept. Every event passes here before it reaches a log: a
/// sequencer checks deliveries and resupplied events, and a store checks appends.
///
/// Data and metadata must be [strict JSON](Json::strict) of a bounded size.
pub fn check_entries(entries: &[Entry], max_event_bytes: usize) -> Result<(), Invalid> {
    if entries.is_empty() || entries.len() > MAX_EVENTS {
        let expected = format!("1 to {MAX_EVENTS} in one append");
        return Err(Invalid::new("number of events", &entries.len().to_string(), expected));
    }
    let mut ids = HashSet::new();
    for entry in entries {
        let parts = [("event data", Some(&entry.data)), ("event metadata", entry.metadata.as_ref())];
        for (what, json) in parts {
            let Some(json) = json else { continue };
            if json.as_str().len() > max_event_bytes {
                let expected = format!(
                    "at most {max_event_bytes} bytes, and event {} has {}; keep large content elsewhere and refer \
                     to it, or raise the store's limit",
                    entry.id,
                    json.as_str().len()
                );
                return Err(Invalid::new(what, json.as_str(), expected));
            }
            json.ensure_strict().map_err(|fault| {
                let expected =
                    format!("JSON that every reader can read; event {} breaks a rule {fault}", entry.id);
                Invalid::new(what, json.as_str(), expected)
            })?;
        }
        if entries.len() > 1 && !ids.insert(entry.id.as_str()) {
            let expected = "an id of its own for each event of an append; this one comes twice";
            return Err(Invalid::new("event id", entry.id.as_str(), expected));
        }
    }
    Ok(())
}
