//! A store whose calls can be held: a call that has its answer does not return until the test
//! allows it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use leftfold::log::{Limit, LogPage};
use leftfold::react::{
    Depth, DocumentSource, DueTasks, FoundDocuments, Query, ReactionStore, Registered, Task, TaskChange,
    TaskKey, WantedTasks,
};
use leftfold::{
    DocumentId, Error, Event, Kind, Log, Mark, Memory, Partition, Position, Result, Revision, StreamId,
};
use tokio::sync::Notify;

#[derive(Clone, Default)]
pub(crate) struct Held {
    pub(crate) memory: Memory,
    pub(crate) holds_loads: Arc<AtomicBool>,
    pub(crate) holds_stirs: Arc<AtomicBool>,
    /// Saves succeed, but their answers are lost.
    pub(crate) loses_answers: Arc<AtomicBool>,
    /// No call gets through, as if the process stood still.
    pub(crate) stands_still: Arc<AtomicBool>,
    /// Notified when a call is held.
    pub(crate) waiting: Arc<Notify>,
    /// Lets a held call continue.
    pub(crate) go_on: Arc<Notify>,
}

impl Held {
    async fn hold(&self, holds: &AtomicBool) {
        if holds.load(Ordering::Relaxed) {
            self.waiting.notify_one();
            self.go_on.notified().await;
        }
    }
}

impl Held {
    async fn pass(&self) {
        while self.stands_still.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Log for Held {
    fn partitions(&self) -> u16 {
        self.memory.partitions()
    }

    async fn heads(&self) -> Result<Mark> {
        self.memory.heads().await
    }

    async fn read(&self, partition: Partition, after: Position, limit: Limit) -> Result<LogPage> {
        self.memory.read(partition, after, limit).await
    }

    async fn read_stream(&self, stream: &StreamId, after: Revision, limit: Limit) -> Result<Vec<Event>> {
        self.memory.read_stream(stream, after, limit).await
    }

    async fn grown(&self, beyond: &Mark) -> Result<()> {
        self.memory.grown(beyond).await
    }
}

impl ReactionStore for Held {
    type Feed = <Memory as ReactionStore>::Feed;

    async fn prepare_reactions(&self, on: &[DocumentSource]) -> Result<()> {
        self.memory.prepare_reactions(on).await
    }

    async fn time(&self) -> Result<Timestamp> {
        self.memory.time().await
    }

    async fn current_documents(
        &self,
        on: &DocumentSource,
        ids: Vec<DocumentId>,
        bytes: usize,
    ) -> Result<FoundDocuments> {
        self.memory.current_documents(on, ids, bytes).await
    }

    async fn page_of_ids(
        &self,
        on: &DocumentSource,
        after: Option<DocumentId>,
        most: usize,
    ) -> Result<Vec<DocumentId>> {
        self.memory.page_of_ids(on, after, most).await
    }

    async fn follow(&self, on: Vec<DocumentSource>, from: Option<String>) -> Result<Self::Feed> {
        self.memory.follow(on, from).await
    }

    async fn load_tasks(&self, keys: Vec<TaskKey>) -> Result<Vec<Task>> {
        self.pass().await;
        let tasks = self.memory.load_tasks(keys).await?;
        self.hold(&self.holds_loads).await;
        Ok(tasks)
    }

    async fn save_tasks(&self, changes: Vec<TaskChange>) -> Result<Vec<TaskKey>> {
        self.pass().await;
        let refused = self.memory.save_tasks(changes).await?;
        if self.loses_answers.load(Ordering::Relaxed) {
            self.hold(&self.loses_answers).await;
            return Err(Error::new(Kind::Unknown, "save tasks: the connection was lost"));
        }
        Ok(refused)
    }

    async fn due_tasks(&self, wanted: Vec<WantedTasks>) -> Result<DueTasks> {
        self.pass().await;
        self.memory.due_tasks(wanted).await
    }

    async fn tasks_to_check(&self, reactions: Vec<String>, most: usize) -> Result<DueTasks> {
        self.memory.tasks_to_check(reactions, most).await
    }

    async fn list_tasks(&self, query: Query, after: Option<TaskKey>, most: usize) -> Result<Vec<Task>> {
        self.memory.list_tasks(query, after, most).await
    }

    async fn task_depths(&self) -> Result<BTreeMap<String, Depth>> {
        self.memory.task_depths().await
    }

    async fn registered(&self) -> Result<Vec<Registered>> {
        self.memory.registered().await
    }

    async fn register(&self, seen: Option<u64>, reaction: Registered) -> Result<bool> {
        self.memory.register(seen, reaction).await
    }

    async fn take_lease(&self, name: &str, owner: &str, length: Duration) -> Result<Option<u64>> {
        self.pass().await;
        self.memory.take_lease(name, owner, length).await
    }

    async fn give_lease(&self, name: &str, owner: &str) -> Result<()> {
        self.memory.give_lease(name, owner).await
    }

    async fn beat(&self, worker: &str, length: Duration) -> Result<()> {
        self.pass().await;
        self.memory.beat(worker, length).await
    }

    async fn living(&self) -> Result<BTreeSet<String>> {
        self.memory.living().await
    }

    async fn feed_place(&self, name: &str) -> Result<Option<String>> {
        self.memory.feed_place(name).await
    }

    async fn put_feed_place(&self, name: &str, lease: u64, place: Option<String>) -> Result<bool> {
        self.memory.put_feed_place(name, lease, place).await
    }

    async fn wake(&self) -> Result<()> {
        self.hold(&self.holds_stirs).await;
        self.memory.wake().await
    }

    async fn woken(&self, since: u64, patience: Duration) -> Result<u64> {
        self.memory.woken(since, patience).await
    }
}
