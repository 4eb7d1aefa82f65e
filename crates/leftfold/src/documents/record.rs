//! A document as it is stored.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::event::{DocumentId, EventKind, Partition, Position, Revision, StreamId};
use crate::json::Json;
use crate::mark::Mark;

/// The reason why a document is parked, or a stream if the projection does not route by stream. The
/// events themselves stay in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// The stream of the event that failed.
    pub stream: StreamId,
    /// The revision of that event.
    pub revision: Revision,
    /// The type of that event.
    pub kind: EventKind,
    /// The partition of that event.
    pub partition: Partition,
    /// The position of that event.
    pub position: Position,
    /// The error message.
    pub error: String,
    /// The number of attempts to fold the event.
    pub attempts: u32,
    /// The time since when it is parked.
    pub since: Timestamp,
    /// The mark up to which every event is folded or concerns other documents.
    pub from: Mark,
    /// The mark of the last events that were set aside.
    pub through: Mark,
    /// The number of waiting events, including the failing one.
    pub waiting: u64,
    /// For a document: `true` if it must be folded again from its first event, because it holds
    /// events after the failing one. For a stream: `true` while a retry is under way, so some
    /// documents already hold its events.
    #[serde(default)]
    pub anew: bool,
}

#[cfg(test)]
impl Parked {
    /// Returns a record parked at the seventh event of the first partition, with nothing folded.
    pub(crate) fn example() -> Self {
        Self {
            stream: StreamId::new("s").unwrap(),
            revision: Revision(3),
            kind: EventKind::new("noted").unwrap(),
            partition: Partition(0),
            position: Position(7),
            error: "poison".into(),
            attempts: 1,
            since: Timestamp::default(),
            from: Mark::default(),
            through: Mark::default(),
            waiting: 1,
            anew: false,
        }
    }
}

/// The guard of a document. A write names the header it was computed from, and succeeds only if
/// that header is still stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The events it has folded.
    pub mark: Mark,
    /// The reason why it is parked, if it is.
    pub parked: Option<Box<Parked>>,
}

/// A stored document. A document without a body is invisible to readers: it was deleted, or its
/// first event failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The id of the document.
    pub id: DocumentId,
    /// The guard of the document.
    pub header: Header,
    /// The content that readers see.
    pub body: Option<Json>,
}

impl Record {
    /// Subtracts the body's length from the bytes left in a page and returns whether it fits. The
    /// first record of a page always fits.
    pub fn fits(&self, is_first: bool, left: &mut usize) -> bool {
        let length = self.body.as_ref().map_or(0, |body| body.as_str().len());
        let fits = is_first || length <= *left;
        *left = left.saturating_sub(length);
        fits
    }
}

/// The number of documents in a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DocumentCounts {
    /// Documents that readers see.
    pub documents: u64,
    /// Parked documents, whether readers see them or not.
    pub parked: u64,
    /// The time since when the first of them is parked, to the second.
    pub parked_since: Option<Timestamp>,
}
