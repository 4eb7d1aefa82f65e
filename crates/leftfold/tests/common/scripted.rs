//! A store in memory that a test scripts: commits with an unknown outcome, and other writers' work
//! between two calls.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "part of tests, each of which uses its own"
)]

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leftfold::documents::{
    Checkpoint, Claim, Collection, Commit, CommitOutcome, DocumentCounts, Generations, Record,
};
use leftfold::log::{AppendError, Appended, Entry, Limit, LogPage};
use leftfold::{
    Append, DocumentId, Documents, Error, Event, Expected, Kind, Log, Mark, Memory, Partition, Position,
    Result, Revision, StreamId,
};

/// The fault of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The outcome is unknown; nothing is written.
    LostBefore,
    /// The outcome is unknown; the commit is written.
    LostAfter,
    /// The commit fails permanently; nothing is written.
    Refused,
}

/// A call before which other writers' work can be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Load,
    Commit,
    Checkpoint,
}

type Hook = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Clone, Default)]
pub struct Scripted {
    pub inner: Memory,
    faults: Arc<Mutex<VecDeque<Fault>>>,
    hooks: Arc<Mutex<Vec<(Call, Hook)>>>,
    commits: Arc<Mutex<Vec<Arc<Commit>>>>,
}

impl Scripted {
    /// Scripts the faults of the next commits, in order; later commits succeed.
    pub fn fault(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.lock().unwrap().extend(faults);
    }

    /// Returns the number of faults that have not happened yet.
    pub fn faults_left(&self) -> usize {
        self.faults.lock().unwrap().len()
    }

    /// Runs this once, before the next such call continues.
    pub fn before(&self, call: Call, hook: impl Future<Output = ()> + Send + 'static) {
        self.hooks.lock().unwrap().push((call, Box::pin(hook)));
    }

    /// Returns all attempted commits.
    pub fn commits(&self) -> Vec<Arc<Commit>> {
        self.commits.lock().unwrap().clone()
    }

    async fn reached(&self, call: Call) {
        let hook = {
            let mut hooks = self.hooks.lock().unwrap();
            let next = hooks.iter().position(|(at, _)| *at == call);
            next.map(|next| hooks.remove(next).1)
        };
        if let Some(hook) = hook {
            hook.await;
        }
    }
}

impl Log for Scripted {
    fn partitions(&self) -> u16 {
        self.inner.partitions()
    }
    async fn heads(&self) -> Result<Mark> {
        self.inner.heads().await
    }
    async fn read(&self, partition: Partition, after: Position, limit: Limit) -> Result<LogPage> {
        self.inner.read(partition, after, limit).await
    }
    async fn read_stream(&self, stream: &StreamId, after: Revision, limit: Limit) -> Result<Vec<Event>> {
        self.inner.read_stream(stream, after, limit).await
    }
    async fn grown(&self, beyond: &Mark) -> Result<()> {
        self.inner.grown(beyond).await
    }
}

impl Append for Scripted {
    async fn append(
        &self,
        stream: StreamId,
        expected: Expected,
        entries: Vec<Entry>,
    ) -> Result<Appended, AppendError> {
        self.inner.append(stream, expected, entries).await
    }
}

impl Documents for Scripted {
    async fn prepare(&self, collection: &Collection) -> Result<()> {
        self.inner.prepare(collection).await
    }

    async fn load(&self, collection: &Collection, ids: Vec<DocumentId>) -> Result<Vec<Record>> {
        self.reached(Call::Load).await;
        self.inner.load(collection, ids).await
    }

    async fn commit(&self, commit: Arc<Commit>) -> Result<CommitOutcome> {
        self.reached(Call::Commit).await;
        self.commits.lock().unwrap().push(commit.clone());
        let fault = self.faults.lock().unwrap().pop_front();
        let lost = || Ok(CommitOutcome::Unknown(Error::new(Kind::Unknown, "lost the connection")));
        match fault {
            None => self.inner.commit(commit).await,
            Some(Fault::LostBefore) => lost(),
            Some(Fault::LostAfter) => {
                let _ = self.inner.commit(commit).await?;
                lost()
            }
            Some(Fault::Refused) => Err(Error::new(Kind::Store, "the disk is full")),
        }
    }

    async fn scan(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> Result<Vec<Record>> {
        self.inner.scan(collection, after, limit).await
    }
    async fn parked(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> Result<Vec<Record>> {
        self.inner.parked(collection, after, limit).await
    }
    async fn count(&self, collection: &Collection) -> Result<DocumentCounts> {
        self.inner.count(collection).await
    }
    async fn checkpoint(&self, projection: &Collection) -> Result<Checkpoint> {
        self.reached(Call::Checkpoint).await;
        self.inner.checkpoint(projection).await
    }
    async fn advanced(&self, projection: &Collection, from: &Mark) -> Result<Mark> {
        self.inner.advanced(projection, from).await
    }
    async fn claim(&self, projection: &Collection, owner: &str, lease: Duration) -> Result<Claim> {
        self.inner.claim(projection, owner, lease).await
    }
    async fn release(&self, projection: &Collection, owner: &str) -> Result<()> {
        self.inner.release(projection, owner).await
    }
    async fn generations(&self, collection: &Collection) -> Result<Generations> {
        self.inner.generations(collection).await
    }
    async fn put_generations(&self, collection: &Collection, seen: u64, next: Generations) -> Result<bool> {
        self.inner.put_generations(collection, seen, next).await
    }
    async fn drop_generation(&self, generation: &Collection) -> Result<()> {
        self.inner.drop_generation(generation).await
    }
}
