//! The amount of deliveries that wait, and the counters of all processes.

use jiff::Timestamp;
use serde::Serialize;

use super::counts::SequencerCounts;
use super::sequencer::Sequencer;
use super::store::{DueGaps, Sequences, Totals};
use crate::error::Result;
use crate::event::StreamId;

/// The amount of deliveries that wait for missing events or for an operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SequencerStatus {
    /// The number of held events.
    pub held: u64,
    /// Their size as counted against the limits.
    pub held_bytes: u64,
    /// The stream that has waited longest.
    pub waits_longest: Option<StreamId>,
    /// The time since which it waits.
    pub waits_since: Option<Timestamp>,
    /// The number of undecided conflicts.
    pub conflicts: u64,
    /// The number of rejected messages.
    pub rejected: u64,
    /// The counters of all processes that ingest into this store. Deliveries that change nothing,
    /// such as duplicates, are counted with the next change.
    pub counts: SequencerCounts,
}

impl<S: Sequences + Clone> Sequencer<S> {
    /// Returns the amount of deliveries that wait for missing events or for an operator.
    pub async fn status(&self) -> Result<SequencerStatus> {
        let store = &self.0.store;
        let survey = store.survey(Vec::new()).await?;
        let due = DueGaps { since: Timestamp::MAX, now: Timestamp::MAX, end: Timestamp::MAX };
        let oldest = store.overdue(due, 1).await?.pop();
        let oldest = oldest.and_then(|(stream, state)| Some((stream, state.waiting?.since)));
        let sum = |of: fn(&Totals) -> u64| survey.totals.values().map(of).sum();
        Ok(SequencerStatus {
            held: sum(|totals| totals.events),
            held_bytes: sum(|totals| totals.bytes),
            waits_longest: oldest.as_ref().map(|(stream, _)| stream.clone()),
            waits_since: oldest.map(|(_, since)| since),
            conflicts: sum(|totals| totals.conflicts),
            rejected: store.count_rejected().await?,
            counts: survey.counts,
        })
    }
}
