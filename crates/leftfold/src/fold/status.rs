//! How a projection is doing.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use super::batch::Occurrence;
use super::figures::Figures;
use crate::documents::{Generations, Tally};
use crate::mark::Mark;

/// What a worker does with a projection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activity {
    /// No worker of this process runs it.
    #[default]
    Stopped,
    /// Another worker has it; this one stands by.
    Standby,
    /// It folds what is in the log.
    CatchingUp,
    /// It has folded all there is and waits for more.
    Live,
    /// The store failed; it will try again.
    Failing,
}

/// How a projection is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// Its name.
    pub projection: String,
    /// What this process does with it.
    pub activity: Activity,
    /// Up to where it is folded, per partition.
    pub position: Mark,
    /// Where the log ends, per partition.
    pub head: Mark,
    /// How many events it is behind.
    pub lag: u64,
    /// Events folded per second by this process, lately.
    pub events_per_second: f64,
    /// Documents that readers see.
    pub documents: u64,
    /// Parked documents.
    pub parked_documents: u64,
    /// Parked streams.
    pub parked_streams: u64,
    /// The [fingerprint](super::Projection::fingerprint) of the code that this process has: its
    /// version, unless it says otherwise.
    pub version: String,
    /// The version of the code that made the documents, and which generations of them there are.
    pub generations: Generations,
    /// The documents were made by code of another version, and are not of this process's version until they are
    /// [rebuilt](crate::App::rebuild).
    pub rebuild_needed: bool,
    /// What was counted since it began, and the last thing that went wrong.
    pub tally: Tally,
    /// When the first event happened that is not folded yet; `None` if all are.
    pub behind_since: Option<Timestamp>,
    /// Since when the first of what is parked is.
    pub parked_since: Option<Timestamp>,
    /// The event that this process has been folding for more than a second, if there is one.
    pub folding: Option<SlowFold>,
    /// What this process has measured.
    #[serde(skip)]
    pub figures: Figures,
}

/// A fold that takes long.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlowFold {
    /// The event that is being folded.
    pub event: Occurrence,
    /// For how many seconds.
    pub seconds: u64,
}

impl fmt::Display for SlowFold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { event, seconds } = self;
        write!(f, "folding {} (revision {}, {}) for {seconds} s", event.stream, event.revision, event.kind)
    }
}

/// How many events lie between two marks.
pub(crate) fn distance(from: &Mark, to: &Mark) -> u64 {
    to.lanes().map(|(lane, number)| number.saturating_sub(from.get(lane))).sum()
}
