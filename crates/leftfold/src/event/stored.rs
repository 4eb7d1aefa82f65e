//! An event in the log.

use jiff::Timestamp;

use super::bookmark::Bookmark;
use super::names::{EventId, EventKind, StreamId};
use super::numbers::{Partition, Position, Revision};
use crate::json::Json;

/// An event in the log. `D` is its data: [`Json`] as stored, or the type a projection decodes it
/// into.
#[derive(Clone, Debug, PartialEq)]
pub struct Event<D = Json> {
    /// The unique id of the event.
    pub id: EventId,
    /// The stream it belongs to.
    pub stream: StreamId,
    /// The place of the event in the stream.
    pub revision: Revision,
    /// The type of the event.
    pub kind: EventKind,
    /// The time when it happened, according to its producer, to the microsecond. Never used to
    /// order events.
    pub time: Timestamp,
    /// The event's data.
    pub data: D,
    /// The metadata of the producer: a JSON object.
    pub metadata: Option<Json>,
    /// The partition of the log.
    pub partition: Partition,
    /// The place of the event in the partition.
    pub position: Position,
}

impl<D> Event<D> {
    /// Returns the bookmark of this event, as its append returned it.
    pub fn bookmark(&self) -> Bookmark {
        Bookmark {
            stream: self.stream.clone(),
            revision: self.revision,
            partition: self.partition,
            position: self.position,
        }
    }

    /// Returns the same event with other data.
    pub(crate) fn with_data<E>(self, data: E) -> Event<E> {
        Event {
            id: self.id,
            stream: self.stream,
            revision: self.revision,
            kind: self.kind,
            time: self.time,
            data,
            metadata: self.metadata,
            partition: self.partition,
            position: self.position,
        }
    }
}

/// Rounds a time down to microseconds, the precision of stored times.
pub(crate) fn to_the_microsecond(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}
