//! The sequencer's storage: held events, the waiting states of their streams, conflicts and
//! rejected messages.
//!
//! Reads return majority-committed data. A stream's last revision may be slightly old, because
//! settling checks it.

mod conflicts;
mod find;
mod record;
mod rejected;
mod settle;
mod skipped;
mod streams;
mod totals;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leftfold::log::Limit;
use leftfold::sequence::{
    Conflict, DueGaps, Found, HeldPage, Rejected, Resolution, Settled, Settlement, Skipped, StreamState,
    Survey, WantedEvents,
};
use leftfold::{Partition, Result, Sequences, StreamId};

use crate::Mongo;
use crate::error::Failure;

/// Futures of operations with several commands are boxed: otherwise they would enlarge the futures
/// of all callers.
impl Sequences for Mongo {
    fn max_event_bytes(&self) -> usize {
        self.inner.max_event_bytes
    }

    async fn survey(&self, streams: Vec<StreamId>) -> Result<Survey> {
        let base = self.logged()?;
        base.run("read streams in", Box::pin(base.survey(streams))).await
    }

    async fn find(&self, wanted: WantedEvents) -> Result<Found> {
        let base = self.logged()?;
        base.run("look for events in", base.read_current(|| Box::pin(base.look_for(&wanted)))).await
    }

    async fn held(&self, streams: Vec<StreamId>, limit: Limit) -> Result<BTreeMap<StreamId, HeldPage>> {
        let base = self.logged()?;
        let streams: BTreeSet<_> = streams.into_iter().collect();
        base.run("read held events in", base.read_current(|| Box::pin(base.pages(&streams, limit)))).await
    }

    async fn settle(&self, settlement: Arc<Settlement>) -> Result<Settled> {
        let base = self.logged()?;
        let failed = |failure: Failure| failure.to_error("settle deliveries in", &base.place);
        Box::pin(base.settle(&settlement)).await.map_err(failed)
    }

    async fn waiting(&self, after: Option<StreamId>, limit: usize) -> Result<Vec<(StreamId, StreamState)>> {
        let base = self.logged()?;
        base.run("read streams in", base.waiting(after, limit)).await
    }

    async fn overdue(&self, due: DueGaps, limit: usize) -> Result<Vec<(StreamId, StreamState)>> {
        let base = self.logged()?;
        base.run("read streams in", base.overdue(due, limit)).await
    }

    async fn conflicts(&self, after: Option<Conflict>, limit: usize) -> Result<Vec<Conflict>> {
        let base = self.logged()?;
        base.run("read conflicts in", base.conflicts(after, limit)).await
    }

    async fn skipped(&self, stream: &StreamId) -> Result<Vec<Skipped>> {
        let base = self.logged()?;
        base.run("read skipped revisions in", base.skipped(stream)).await
    }

    async fn reject(&self, rejected: Vec<Rejected>) -> Result<()> {
        self.logged()?.reject(rejected).await
    }

    async fn rejected(&self, after: Option<String>, limit: usize) -> Result<Vec<Rejected>> {
        let base = self.logged()?;
        base.run("read rejected messages in", base.rejected(after, limit)).await
    }

    async fn count_rejected(&self) -> Result<u64> {
        let base = self.logged()?;
        base.run("count rejected messages in", base.count_rejected()).await
    }

    async fn forget(&self, rejected: &str) -> Result<bool> {
        let base = self.logged()?;
        base.run("delete a rejected message in", base.delete_rejected(rejected)).await
    }

    async fn resolve(&self, conflict: &Conflict, decided: Option<Resolution>) -> Result<bool> {
        let base = self.logged()?;
        let partition = Partition::of(&conflict.stream, base.partitions.unwrap_or(1));
        base.resolve(partition, conflict, decided.as_ref()).await
    }
}
