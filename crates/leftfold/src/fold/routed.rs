//! A page of the log as a projection sees it.

use jiff::Timestamp;
use serde::Serialize;

use super::{DocumentIds, Error};
use crate::event::{Event, EventId, EventKind, Partition, Position, Revision, StreamId};

/// A page of the log, decoded and routed.
pub(crate) struct Routed<E> {
    pub(crate) partition: Partition,
    pub(crate) through: Position,
    pub(crate) more: bool,
    pub(crate) events: u64,
    pub(super) ignored: u64,
    pub(crate) steps: Vec<Step<E>>,
    /// The number of steps that are done.
    pub(super) taken: usize,
}

/// One event as a projection sees it.
pub(crate) enum Step<E> {
    Fold(Event<E>, DocumentIds, usize),
    Broken(Event, Error),
}

impl<E> Step<E> {
    pub(super) fn event(&self) -> Option<&Event<E>> {
        match self {
            Self::Fold(event, ..) => Some(event),
            Self::Broken(..) => None,
        }
    }

    /// Returns the place of the event in its partition.
    pub(super) fn position(&self) -> Position {
        match self {
            Self::Fold(event, ..) => event.position,
            Self::Broken(event, _) => event.position,
        }
    }
}

impl<E> Routed<E> {
    /// Returns whether nothing of it is folded yet.
    pub(crate) fn is_untouched(&self) -> bool {
        self.taken == 0
    }

    /// Returns the number of applications of an event to a document.
    pub(crate) fn applications(&self) -> u64 {
        let ids = self.steps.iter().map(|step| match step {
            Step::Fold(_, ids, _) => ids.as_slice().len() as u64,
            Step::Broken(..) => 1,
        });
        ids.sum()
    }
}

/// An event without its data: enough to find it again.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Occurrence {
    /// The stream of the event.
    pub stream: StreamId,
    /// The place of the event in the stream.
    pub revision: Revision,
    /// The type of the event.
    pub kind: EventKind,
    /// The id of the event.
    pub id: EventId,
    /// The time when it happened.
    pub time: Timestamp,
    /// The partition of the event.
    pub partition: Partition,
    /// The place of the event in the partition.
    pub position: Position,
}

impl Occurrence {
    pub(crate) fn of<D>(event: &Event<D>) -> Self {
        Self {
            stream: event.stream.clone(),
            revision: event.revision,
            kind: event.kind.clone(),
            id: event.id.clone(),
            time: event.time,
            partition: event.partition,
            position: event.position,
        }
    }
}
