//! A store that fails on demand.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use leftfold::log::{Append, AppendError, Appended, Entry, Expected, Limit, LogPage};
use leftfold::sequence::{
    self, Conflict, DueGaps, Found, Rejected, Resolution, Settled, Settlement, Skipped, StreamState, Survey,
    WantedEvents,
};
use leftfold::{
    Error, Event, Kind, Log, Mark, Memory, Partition, Position, Result, Revision, Sequences, StreamId,
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// Nothing is written.
    Before(Kind),
    /// The write succeeds, and the caller gets an error.
    After,
}

#[derive(Clone, Default)]
pub(crate) struct Faulty {
    pub store: Memory,
    pub settle: Arc<Mutex<VecDeque<Fault>>>,
    pub reject: Arc<Mutex<VecDeque<Fault>>>,
    /// A stream that the store never accepts.
    pub unacceptable: Arc<Mutex<Option<StreamId>>>,
}

fn failure(kind: Kind) -> Error {
    Error::new(kind, "the store fails as it was told to")
}

impl Log for Faulty {
    fn partitions(&self) -> u16 {
        self.store.partitions()
    }

    async fn heads(&self) -> Result<Mark> {
        self.store.heads().await
    }

    async fn read(&self, partition: Partition, after: Position, limit: Limit) -> Result<LogPage> {
        self.store.read(partition, after, limit).await
    }

    async fn read_stream(&self, stream: &StreamId, after: Revision, limit: Limit) -> Result<Vec<Event>> {
        self.store.read_stream(stream, after, limit).await
    }

    async fn grown(&self, beyond: &Mark) -> Result<()> {
        self.store.grown(beyond).await
    }
}

impl Append for Faulty {
    async fn append(
        &self,
        stream: StreamId,
        expected: Expected,
        entries: Vec<Entry>,
    ) -> Result<Appended, AppendError> {
        self.store.append(stream, expected, entries).await
    }
}

impl Sequences for Faulty {
    async fn survey(&self, streams: Vec<StreamId>) -> Result<Survey> {
        self.store.survey(streams).await
    }

    fn max_event_bytes(&self) -> usize {
        self.store.max_event_bytes()
    }

    async fn find(&self, wanted: WantedEvents) -> Result<Found> {
        self.store.find(wanted).await
    }

    async fn held(
        &self,
        streams: Vec<StreamId>,
        limit: Limit,
    ) -> Result<BTreeMap<StreamId, sequence::HeldPage>> {
        self.store.held(streams, limit).await
    }

    async fn settle(&self, settlement: Arc<Settlement>) -> Result<Settled> {
        let unacceptable = self.unacceptable.lock().unwrap().clone();
        if settlement.steps.iter().any(|step| Some(&step.stream) == unacceptable.as_ref()) {
            return Err(failure(Kind::Invalid));
        }
        let fault = self.settle.lock().unwrap().pop_front();
        match fault {
            Some(Fault::Before(kind)) => Err(failure(kind)),
            Some(Fault::After) => {
                self.store.settle(settlement).await?;
                Err(failure(Kind::Unknown))
            }
            None => self.store.settle(settlement).await,
        }
    }

    async fn waiting(&self, after: Option<StreamId>, limit: usize) -> Result<Vec<(StreamId, StreamState)>> {
        self.store.waiting(after, limit).await
    }

    async fn overdue(&self, due: DueGaps, limit: usize) -> Result<Vec<(StreamId, StreamState)>> {
        self.store.overdue(due, limit).await
    }

    async fn conflicts(&self, after: Option<Conflict>, limit: usize) -> Result<Vec<Conflict>> {
        self.store.conflicts(after, limit).await
    }

    async fn skipped(&self, stream: &StreamId) -> Result<Vec<Skipped>> {
        self.store.skipped(stream).await
    }

    async fn reject(&self, rejected: Vec<Rejected>) -> Result<()> {
        let fault = self.reject.lock().unwrap().pop_front();
        match fault {
            Some(Fault::Before(kind)) => Err(failure(kind)),
            Some(Fault::After) => {
                self.store.reject(rejected).await?;
                Err(failure(Kind::Unknown))
            }
            None => self.store.reject(rejected).await,
        }
    }

    async fn rejected(&self, after: Option<String>, limit: usize) -> Result<Vec<Rejected>> {
        self.store.rejected(after, limit).await
    }

    async fn count_rejected(&self) -> Result<u64> {
        self.store.count_rejected().await
    }

    async fn forget(&self, rejected: &str) -> Result<bool> {
        self.store.forget(rejected).await
    }

    async fn resolve(&self, conflict: &Conflict, decided: Option<Resolution>) -> Result<bool> {
        self.store.resolve(conflict, decided).await
    }
}
