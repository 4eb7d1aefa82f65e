//! The store of reactions in MongoDB: a change stream, individually guarded tasks, leases and
//! wake-ups.

mod complete;
mod documents;
mod due;
mod feed;

mod leases;
mod list;
mod prepare;
mod record;
mod registry;
mod tasks;
mod wake;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use leftfold::react::{
    Depth, DocumentSource, DueTasks, FoundDocuments, Query, ReactionStore, Registered, Task, TaskChange,
    TaskKey, WantedTasks,
};
use leftfold::{DocumentId, Result};

pub use self::complete::{InTransaction, is_repeatable};
pub use self::feed::MongoFeed;
pub(crate) use self::record::closed;
use crate::Mongo;
use crate::encoding::ids;

/// Reactions need a replica set, because only a replica set has change streams.
///
/// Documents of [plain](leftfold::react::ExternalCollection) collections can have an `_id` of any
/// type. If the `_id` is a string, it is the id. Otherwise the id is its canonical extended JSON:
/// `{"$oid":"…"}`, `{"$numberInt":"5"}`, `true`. A string that could be taken for such JSON becomes
/// a quoted JSON string. These are strings that begin with `{` or `"`, that are `true`, `false`,
/// `null` or empty, or that have control characters.
///
/// Handlers read bodies as relaxed extended JSON, with the `_id`. Filters and watched paths see
/// BSON's own types. Documents stored as [contents](leftfold::content) have their original bodies,
/// without the `_id`.
impl ReactionStore for Mongo {
    type Feed = MongoFeed;

    async fn prepare_reactions(&self, on: &[DocumentSource]) -> Result<()> {
        prepare::prepare(&self.inner.base, on).await
    }

    async fn time(&self) -> Result<Timestamp> {
        let base = &self.inner.base;
        base.run("read the time of", base.now()).await
    }

    async fn current_documents(
        &self,
        on: &DocumentSource,
        ids: Vec<DocumentId>,
        bytes: usize,
    ) -> Result<FoundDocuments> {
        let base = &self.inner.base;
        base.run("load documents from", base.current_documents(on, ids, bytes)).await
    }

    async fn page_of_ids(
        &self,
        on: &DocumentSource,
        after: Option<DocumentId>,
        most: usize,
    ) -> Result<Vec<DocumentId>> {
        let base = &self.inner.base;
        if let (DocumentSource::External(_), Some(after)) = (on, &after)
            && ids::value(after).is_none()
        {
            let expected = "the last id of a page of documents";
            return Err(leftfold::Invalid::new("document id", after.as_str(), expected).into());
        }
        base.run("list documents in", base.page_of_ids(on, after.as_ref(), most)).await
    }

    async fn follow(&self, on: Vec<DocumentSource>, from: Option<String>) -> Result<MongoFeed> {
        MongoFeed::open(&self.inner.base, on, from).await
    }

    async fn has_changes(&self, on: Vec<DocumentSource>, after: String) -> Result<bool> {
        let base = &self.inner.base;
        base.run("look for changes in", feed::has_changes(base, on, &after)).await
    }

    async fn load_tasks(&self, keys: Vec<TaskKey>) -> Result<Vec<Task>> {
        let base = &self.inner.base;
        base.run("load tasks from", base.load_tasks(&keys)).await
    }

    async fn save_tasks(&self, changes: Vec<TaskChange>) -> Result<Vec<TaskKey>> {
        self.inner.base.save_tasks(&changes).await
    }

    async fn due_tasks(&self, wanted: Vec<WantedTasks>) -> Result<DueTasks> {
        let base = &self.inner.base;
        base.run("look for due tasks in", base.due_tasks(wanted)).await
    }

    async fn tasks_to_check(&self, reactions: Vec<String>, most: usize) -> Result<DueTasks> {
        let base = &self.inner.base;
        base.run("look for tasks to check in", base.tasks_to_check(&reactions, most)).await
    }

    async fn list_tasks(&self, query: Query, after: Option<TaskKey>, most: usize) -> Result<Vec<Task>> {
        let base = &self.inner.base;
        base.run("list tasks in", base.list_tasks(&query, after.as_ref(), most)).await
    }

    async fn task_depths(&self) -> Result<BTreeMap<String, Depth>> {
        let base = &self.inner.base;
        base.run("count tasks in", base.task_depths()).await
    }

    async fn registered(&self) -> Result<Vec<Registered>> {
        let base = &self.inner.base;
        base.run("read the reactions in", base.registered()).await
    }

    async fn register(&self, seen: Option<u64>, reaction: Registered) -> Result<bool> {
        let base = &self.inner.base;
        base.run("register a reaction in", base.register(seen, reaction)).await
    }

    async fn take_lease(&self, name: &str, owner: &str, length: Duration) -> Result<Option<u64>> {
        let base = &self.inner.base;
        base.run("take a lease in", base.take_lease(name, owner, length)).await
    }

    async fn give_lease(&self, name: &str, owner: &str) -> Result<()> {
        let base = &self.inner.base;
        base.run("release a lease in", base.give_lease(name, owner)).await
    }

    async fn beat(&self, worker: &str, length: Duration) -> Result<()> {
        let base = &self.inner.base;
        base.run("store the heartbeat of a worker in", base.beat(worker, length)).await
    }

    async fn living(&self) -> Result<BTreeSet<String>> {
        let base = &self.inner.base;
        base.run("read the heartbeats in", base.living()).await
    }

    async fn feed_place(&self, name: &str) -> Result<Option<String>> {
        let base = &self.inner.base;
        base.run("read the place of a feed in", base.feed_place(name)).await
    }

    async fn put_feed_place(&self, name: &str, lease: u64, place: Option<String>) -> Result<bool> {
        let base = &self.inner.base;
        base.run("store the place of a feed in", base.put_feed_place(name, lease, place)).await
    }

    async fn wake(&self) -> Result<()> {
        let base = &self.inner.base;
        base.run("wake the runners of", base.wake()).await
    }

    async fn woken(&self, since: u64, patience: Duration) -> Result<u64> {
        let base = &self.inner.base;
        let woken = base.wait_for_wake(since, patience).await;
        woken.map_err(|failure| failure.to_error("wait for tasks in", &base.place))
    }
}
