//! The sequencer's storage: held events, the waiting states of their streams, conflicts and
//! rejected messages.

mod conflicts;
mod find;
mod record;
mod rejected;
mod settle;
mod skipped;
mod streams;
mod totals;

use std::collections::BTreeMap;
use std::sync::Arc;

use leftfold::log::Limit;
use leftfold::sequence::{
    Conflict, DueGaps, Found, HeldPage, Rejected, Resolution, Settled, Settlement, Skipped, StreamState,
    Survey, WantedEvents,
};
use leftfold::{Partition, Result, Sequences, StreamId};

use crate::Sqlite;

impl Sequences for Sqlite {
    fn max_event_bytes(&self) -> usize {
        self.inner.max_event_bytes
    }

    async fn survey(&self, streams: Vec<StreamId>) -> Result<Survey> {
        self.inner.readers.read("read streams in", move |file| streams::survey(file, streams)).await
    }

    async fn find(&self, wanted: WantedEvents) -> Result<Found> {
        self.inner.readers.read("look for events in", move |file| find::find(file, &wanted)).await
    }

    async fn held(&self, streams: Vec<StreamId>, limit: Limit) -> Result<BTreeMap<StreamId, HeldPage>> {
        let read = move |file: &_| find::pages(file, streams, limit);
        self.inner.readers.read("read held events in", read).await
    }

    async fn settle(&self, settlement: Arc<Settlement>) -> Result<Settled> {
        point!("settle");
        self.inner.writer.run(settle::SettleWork(settlement)).await
    }

    async fn waiting(&self, after: Option<StreamId>, limit: usize) -> Result<Vec<(StreamId, StreamState)>> {
        let read = move |file: &_| streams::waiting(file, after.as_ref(), limit);
        self.inner.readers.read("read streams in", read).await
    }

    async fn overdue(&self, due: DueGaps, limit: usize) -> Result<Vec<(StreamId, StreamState)>> {
        let read = move |file: &_| streams::overdue(file, &due, limit);
        self.inner.readers.read("read streams in", read).await
    }

    async fn conflicts(&self, after: Option<Conflict>, limit: usize) -> Result<Vec<Conflict>> {
        let read = move |file: &_| conflicts::list(file, after, limit);
        self.inner.readers.read("read conflicts in", read).await
    }

    async fn skipped(&self, stream: &StreamId) -> Result<Vec<Skipped>> {
        let stream = stream.clone();
        let read = move |file: &_| skipped::list(file, &stream);
        self.inner.readers.read("read skipped revisions in", read).await
    }

    async fn reject(&self, rejected: Vec<Rejected>) -> Result<()> {
        self.inner.writer.run(rejected::RejectWork(rejected, self.inner.writer.place())).await
    }

    async fn rejected(&self, after: Option<String>, limit: usize) -> Result<Vec<Rejected>> {
        let read = move |file: &_| rejected::list(file, after, limit);
        self.inner.readers.read("read rejected messages in", read).await
    }

    async fn count_rejected(&self) -> Result<u64> {
        self.inner.readers.read("count rejected messages in", rejected::count).await
    }

    async fn forget(&self, rejected: &str) -> Result<bool> {
        self.inner.writer.run(rejected::DeleteWork(rejected.to_owned())).await
    }

    async fn resolve(&self, conflict: &Conflict, decided: Option<Resolution>) -> Result<bool> {
        let partition = Partition::of(&conflict.stream, self.inner.partitions);
        self.inner.writer.run(conflicts::ResolveWork { conflict: conflict.clone(), partition, decided }).await
    }
}
