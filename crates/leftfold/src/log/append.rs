//! The writing half of a log: appends, and their results.

use std::future::Future;

use super::entry::Entry;
use super::read::Log;
use crate::error::{Error, Invalid};
use crate::event::{Bookmark, EventId, Revision, StreamId};

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
