//! A log in one store and documents in another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::documents::{
    Checkpoint, Claim, Collection, Commit, CommitOutcome, DocumentCounts, Documents, Generations, Record,
};
use crate::error::Result;
use crate::event::{DocumentId, Event, Partition, Position, Revision, StreamId};
use crate::inspect::doctor::{Examine, Finding};
use crate::log::{Append, AppendError, Appended, Entry, Expected, Limit, Log, LogPage};
use crate::mark::Mark;
use crate::revision::{Counters, Draw};
use crate::sequence::{
    self, Conflict, DueGaps, Found, Rejected, Resolution, Sequences, Settled, Settlement, Skipped,
    StreamState, Survey, WantedEvents,
};

/// A store whose log is in one store and whose documents are in another. Nothing is ever written to
/// both at once, so all guarantees hold.
///
/// ```
/// use leftfold::{SplitStore, Leftfold, Memory};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leftfold::Result<()> {
/// let app = Leftfold::on(SplitStore { log: Memory::default(), documents: Memory::default() });
/// # app.open().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SplitStore<L, D> {
    /// The store of the log.
    pub log: L,
    /// The store of the documents and checkpoints.
    pub documents: D,
}

impl<L: Log, D: Send + Sync + 'static> Log for SplitStore<L, D> {
    fn partitions(&self) -> u16 {
        self.log.partitions()
    }

    async fn heads(&self) -> Result<Mark> {
        self.log.heads().await
    }

    async fn read(&self, partition: Partition, after: Position, limit: Limit) -> Result<LogPage> {
        self.log.read(partition, after, limit).await
    }

    async fn read_stream(&self, stream: &StreamId, after: Revision, limit: Limit) -> Result<Vec<Event>> {
        self.log.read_stream(stream, after, limit).await
    }

    async fn grown(&self, beyond: &Mark) -> Result<()> {
        self.log.grown(beyond).await
    }
}

impl<L: Append, D: Send + Sync + 'static> Append for SplitStore<L, D> {
    async fn append(
        &self,
        stream: StreamId,
        expected: Expected,
        entries: Vec<Entry>,
    ) -> Result<Appended, AppendError> {
        self.log.append(stream, expected, entries).await
    }
}

impl<L: Send + Sync + 'static, D: Documents> Documents for SplitStore<L, D> {
    async fn prepare(&self, collection: &Collection) -> Result<()> {
        self.documents.prepare(collection).await
    }

    async fn load(&self, collection: &Collection, ids: Vec<DocumentId>) -> Result<Vec<Record>> {
        self.documents.load(collection, ids).await
    }

    async fn load_current(&self, collection: &Collection, ids: Vec<DocumentId>) -> Result<Vec<Record>> {
        self.documents.load_current(collection, ids).await
    }

    async fn commit(&self, commit: Arc<Commit>) -> Result<CommitOutcome> {
        self.documents.commit(commit).await
    }

    async fn scan(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> Result<Vec<Record>> {
        self.documents.scan(collection, after, limit).await
    }

    async fn scan_page(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
        bytes: usize,
    ) -> Result<(Vec<Record>, bool)> {
        self.documents.scan_page(collection, after, limit, bytes).await
    }

    async fn parked(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> Result<Vec<Record>> {
        self.documents.parked(collection, after, limit).await
    }

    async fn count(&self, collection: &Collection) -> Result<DocumentCounts> {
        self.documents.count(collection).await
    }

    async fn checkpoint(&self, projection: &Collection) -> Result<Checkpoint> {
        self.documents.checkpoint(projection).await
    }

    async fn advanced(&self, projection: &Collection, from: &Mark) -> Result<Mark> {
        self.documents.advanced(projection, from).await
    }

    async fn claim(&self, projection: &Collection, owner: &str, lease: Duration) -> Result<Claim> {
        self.documents.claim(projection, owner, lease).await
    }

    async fn release(&self, projection: &Collection, owner: &str) -> Result<()> {
        self.documents.release(projection, owner).await
    }

    async fn generations(&self, collection: &Collection) -> Result<Generations> {
        self.documents.generations(collection).await
    }

    async fn put_generations(&self, collection: &Collection, seen: u64, next: Generations) -> Result<bool> {
        self.documents.put_generations(collection, seen, next).await
    }

    async fn drop_generation(&self, generation: &Collection) -> Result<()> {
        self.documents.drop_generation(generation).await
    }
}

impl<L: Sequences, D: Send + Sync + 'static> Sequences for SplitStore<L, D> {
    fn max_event_bytes(&self) -> usize {
        self.log.max_event_bytes()
    }

    async fn survey(&self, streams: Vec<StreamId>) -> Result<Survey> {
        self.log.survey(streams).await
    }

    async fn find(&self, wanted: WantedEvents) -> Result<Found> {
        self.log.find(wanted).await
    }

    async fn held(
        &self,
        streams: Vec<StreamId>,
        limit: Limit,
    ) -> Result<BTreeMap<StreamId, sequence::HeldPage>> {
        self.log.held(streams, limit).await
    }

    async fn settle(&self, settlement: Arc<Settlement>) -> Result<Settled> {
        self.log.settle(settlement).await
    }

    async fn waiting(&self, after: Option<StreamId>, limit: usize) -> Result<Vec<(StreamId, StreamState)>> {
        self.log.waiting(after, limit).await
    }

    async fn overdue(&self, due: DueGaps, limit: usize) -> Result<Vec<(StreamId, StreamState)>> {
        self.log.overdue(due, limit).await
    }

    async fn conflicts(&self, after: Option<Conflict>, limit: usize) -> Result<Vec<Conflict>> {
        self.log.conflicts(after, limit).await
    }

    async fn skipped(&self, stream: &StreamId) -> Result<Vec<Skipped>> {
        self.log.skipped(stream).await
    }

    async fn reject(&self, rejected: Vec<Rejected>) -> Result<()> {
        self.log.reject(rejected).await
    }

    async fn rejected(&self, after: Option<String>, limit: usize) -> Result<Vec<Rejected>> {
        self.log.rejected(after, limit).await
    }

    async fn count_rejected(&self) -> Result<u64> {
        self.log.count_rejected().await
    }

    async fn forget(&self, rejected: &str) -> Result<bool> {
        self.log.forget(rejected).await
    }

    async fn resolve(&self, conflict: &Conflict, decided: Option<Resolution>) -> Result<bool> {
        self.log.resolve(conflict, decided).await
    }
}

impl<L: Send + Sync + 'static, D: Counters> Counters for SplitStore<L, D> {
    async fn draw(&self, draw: Draw) -> Result<u64> {
        self.documents.draw(draw).await
    }
}

impl<L: Examine, D: Examine> Examine for SplitStore<L, D> {
    async fn examine(&self) -> Result<Vec<Finding>> {
        let mut findings = self.log.examine().await?;
        findings.extend(self.documents.examine().await?);
        Ok(findings)
    }

    async fn collections(&self) -> Result<Vec<Collection>> {
        self.documents.collections().await
    }

    async fn probe(&self) -> Result<()> {
        self.log.probe().await?;
        self.documents.probe().await
    }
}
