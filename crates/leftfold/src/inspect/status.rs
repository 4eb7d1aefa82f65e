//! The status of a projection.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use crate::documents::{Collection, Generations, Tally};
use crate::error::Result;
use crate::fold::{Activity, Figures, Occurrence};
use crate::log::Limit;
use crate::mark::Mark;
use crate::store::Store;

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
    /// The [fingerprint](crate::Projection::fingerprint) of this process's code: its version,
    /// unless overridden. Empty if this process has no code for it.
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

/// Returns the status of a collection as its store has it. What only a process with the projection's
/// code knows is empty: its version, its activity and its measurements.
pub(crate) async fn stored_status<S: Store>(
    store: &S,
    name: &Collection,
    head: Mark,
) -> Result<ProjectionStatus> {
    let checkpoint = store.checkpoint(name).await?;
    let counts = store.count(name).await?;
    let streams = store.count(&name.streams()).await?;
    let generations = store.generations(name).await?;
    let behind_since = behind_since(store, &checkpoint.mark, &head).await?;
    Ok(ProjectionStatus {
        projection: name.to_string(),
        lag: checkpoint.mark.distance(&head),
        position: checkpoint.mark,
        head,
        documents: counts.documents,
        parked_documents: counts.parked,
        parked_streams: streams.parked,
        generations,
        tally: checkpoint.tally,
        behind_since,
        parked_since: [counts.parked_since, streams.parked_since].into_iter().flatten().min(),
        ..ProjectionStatus::default()
    })
}

/// Returns the earliest time of the next unread events of all partitions after a mark.
async fn behind_since<S: Store>(store: &S, mark: &Mark, head: &Mark) -> Result<Option<Timestamp>> {
    let one = Limit { events: 1, ..Limit::default() };
    let mut since = None;
    for (lane, end) in head.lanes() {
        let Some(partition) = lane.partition().filter(|_| mark.get(lane) < end) else { continue };
        let page = store.read(partition, mark.position(partition), one).await?;
        since = since.into_iter().chain(page.events.first().map(|event| event.time)).min();
    }
    Ok(since)
}

/// The state of a projection, without the costly count of its documents.
/// [`App::status`](crate::App::status) says more.
#[derive(Clone, Debug, PartialEq)]
pub struct Vitals {
    /// The name of the projection.
    pub projection: String,
    /// The work of this process on it.
    pub activity: Activity,
    /// The last error in this process.
    pub last_error: Option<String>,
    /// The position up to which the projection has folded, per partition.
    pub position: Mark,
    /// The number of events it is behind.
    pub lag: u64,
    /// `true` if one of its documents or streams is parked.
    pub is_parked: bool,
}
