//! A settlement: the changes of streams that are written atomically.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Conflict, Held, StreamVersion, Totals, Waiting};
use crate::error::Error;
use crate::event::{EventId, Partition, Position, Revision, StreamId};
use crate::log::Entry;
use crate::sequence::counts::SequencerCounts;

/// A change of one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamChange {
    /// The stream.
    pub stream: StreamId,
    /// The state from which it was computed. If the stream has changed since, nothing is written.
    pub seen: StreamVersion,
    /// The entries to append to the log, by revision, all above the last.
    pub append: Vec<(Revision, Arc<Entry>)>,
    /// The events to hold, by revision.
    pub hold: Vec<Held>,
    /// The revisions that are no longer held.
    pub unhold: Vec<Revision>,
    /// The gap after the change.
    pub waiting: Option<Waiting>,
}

/// Changes of streams of one partition, written atomically.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settlement {
    /// The partition.
    pub partition: Partition,
    /// The streams, each once.
    pub steps: Vec<StreamChange>,
    /// New conflicts. A conflict that is already kept changes nothing.
    pub conflicts: Vec<Conflict>,
    /// The decision that revisions do not exist, if this settlement records one.
    pub skipped: Option<Skipped>,
    /// The limits of the partition. They apply only to totals that grow.
    pub bounds: Totals,
    /// The counters to add.
    pub counts: SequencerCounts,
}

/// The result of a settlement.
#[derive(Debug)]
pub enum Settled {
    /// It is stored, durably. Its events are consecutive in the log, in the order of the steps.
    Applied {
        /// The position before the first of them.
        before: Position,
    },
    /// These streams have changed. Nothing is written.
    Moved(Vec<StreamId>),
    /// These ids belong to events in the log. Nothing is written.
    Taken(Vec<EventId>),
    /// It would exceed the limits. Nothing is written.
    Full,
    /// The outcome is unknown: it may be written now or later. Settle again from the stored state.
    Unknown(Error),
}

/// A decision of an operator that revisions do not exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The stream.
    pub stream: StreamId,
    /// The revision before the first skipped one.
    pub after: Revision,
    /// The last skipped revision.
    pub through: Revision,
    /// The reason.
    pub reason: String,
    /// The time of the decision.
    pub at: Timestamp,
}
