//! The status of a projection.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use super::batch::Occurrence;
use super::figures::Figures;
use crate::documents::{Generations, Tally};
use crate::mark::Mark;

/// The activity of a worker on a projection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activity {
    /// No worker of this process runs it.
    #[default]
    Stopped,
    /// Another worker holds the lease; this one stands by.
    Standby,
    /// It folds the backlog of the log.
    CatchingUp,
    /// It has folded all events and waits for more.
    Live,
    /// The store failed; the worker will retry.
    Failing,
}

/// The status of a projection.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProjectionStatus {
    /// The name of the projection.
    pub projection: String,
    /// The activity of this process.
    pub activity: Activity,
    /// The position up to which it has folded, per partition.
    pub position: Mark,
    /// The last position of the log, per partition.
    pub head: Mark,
    /// The number of events it is behind.
    pub lag: u64,
    /// The recent number of events folded per second by this process.
    pub events_per_second: f64,
    /// Documents that readers see.
    pub documents: u64,
    /// Parked documents.
    pub parked_documents: u64,
    /// Parked streams.
    pub parked_streams: u64,
    /// The [fingerprint](super::Projection::fingerprint) of this process's code: its version,
    /// unless overridden.
    pub version: String,
    /// The generations of the documents, with the versions of the code that built them.
    pub generations: Generations,
    /// `true` if code of another version built the documents. They match this process's version
    /// only after they are [rebuilt](crate::App::rebuild).
    pub rebuild_needed: bool,
    /// The counters since it began, and the last error.
    pub tally: Tally,
    /// The time of the first event that is not folded yet; `None` if all are.
    pub behind_since: Option<Timestamp>,
    /// The time since when the longest-parked unit is parked.
    pub parked_since: Option<Timestamp>,
    /// The event that this process has been folding for more than a second, if there is one.
    pub folding: Option<SlowFold>,
    /// The measurements of this process.
    #[serde(skip)]
    pub figures: Figures,
}

/// A slow fold.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlowFold {
    /// The event that is being folded.
    pub event: Occurrence,
    /// The time it has taken so far, in seconds.
    pub seconds: u64,
}

impl fmt::Display for SlowFold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { event, seconds } = self;
        write!(f, "folding {} (revision {}, {}) for {seconds} s", event.stream, event.revision, event.kind)
    }
}

/// Returns the number of events between two marks.
pub(crate) fn distance(from: &Mark, to: &Mark) -> u64 {
    to.lanes().map(|(lane, number)| number.saturating_sub(from.get(lane))).sum()
}
