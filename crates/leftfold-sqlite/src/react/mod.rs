//! The store of reactions: documents and their changes, tasks, leases, wake-ups.
//!
//! Triggers write changes to a journal in the transaction that changes a document, so that changes
//! by any program are seen. Time-based decisions use the store's time, which is shared by all
//! processes that have the file open.

mod complete;
mod documents;
mod due;
pub(crate) mod feed;
mod leases;
mod list;
mod prepare;
mod record;
mod registry;
mod tasks;
mod triggers;
mod wake;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use leftfold::react::{
    Depth, DocumentSource, DueTasks, FoundDocuments, Query, ReactionStore, Registered, Task, TaskChange,
    TaskKey, WantedTasks,
};
use leftfold::{DocumentId, Result};
use rusqlite::Connection;

use crate::Sqlite;
use crate::clock;
use crate::error::Failure;

pub use self::complete::{InTransaction, document_in, save_task_in, task_in};
pub use self::feed::SqliteFeed;
pub(crate) use self::prepare::check as check_table;
use self::record::timestamp;
pub(crate) use self::registry::all as registered;
pub(crate) use self::triggers::{are_followed, switch_followed};
pub(crate) use self::wake::wakes;

impl ReactionStore for Sqlite {
    type Feed = SqliteFeed;

    async fn prepare_reactions(&self, on: &[DocumentSource]) -> Result<()> {
        let on = on.to_vec();
        let followed = on.clone();
        let doing = "look for triggers in";
        if self.inner.readers.read(doing, move |file| are_followed(file, &followed)).await? {
            return Ok(());
        }
        self.inner.writer.run(prepare::FollowWork(on)).await
    }

    async fn time(&self) -> Result<Timestamp> {
        self.inner.readers.read("read the time in", |file| clock::now(file).map(timestamp)).await
    }

    async fn current_documents(
        &self,
        on: &DocumentSource,
        ids: Vec<DocumentId>,
        bytes: usize,
    ) -> Result<FoundDocuments> {
        let on = on.clone();
        let read = move |file: &Connection| documents::find(file, &on, ids, bytes);
        self.inner.readers.read("load documents from", read).await
    }

    async fn page_of_ids(
        &self,
        on: &DocumentSource,
        after: Option<DocumentId>,
        most: usize,
    ) -> Result<Vec<DocumentId>> {
        let on = on.clone();
        let read = move |file: &Connection| documents::page(file, &on, after.as_ref(), most);
        self.inner.readers.read("list documents in", read).await
    }

    async fn follow(&self, on: Vec<DocumentSource>, from: Option<String>) -> Result<SqliteFeed> {
        let at = match from {
            // A text that is not a number is not a place in any journal.
            Some(place) => place.parse().unwrap_or(-1),
            None => self.inner.readers.read("follow documents in", feed::journal::last).await?,
        };
        Ok(SqliteFeed::new(self.clone(), on, at))
    }

    async fn load_tasks(&self, keys: Vec<TaskKey>) -> Result<Vec<Task>> {
        let read = move |file: &Connection| {
            let tasks = keys.iter().map(|key| tasks::load(file, key));
            tasks.filter_map(Result::transpose).collect()
        };
        self.inner.readers.read("load tasks from", read).await
    }

    async fn save_tasks(&self, changes: Vec<TaskChange>) -> Result<Vec<TaskKey>> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let doing = |failure: Failure| failure.to_error("save tasks in", &self.inner.path);
        let writes = changes.into_iter().map(tasks::Write::new).collect::<Result<_, _>>().map_err(doing)?;
        self.inner.writer.run(tasks::SaveWork(writes)).await
    }

    async fn due_tasks(&self, wanted: Vec<WantedTasks>) -> Result<DueTasks> {
        self.inner.readers.read("look for due tasks in", move |file| due::due(file, &wanted)).await
    }

    async fn tasks_to_check(&self, reactions: Vec<String>, most: usize) -> Result<DueTasks> {
        let read = move |file: &Connection| due::to_check(file, &reactions, most);
        self.inner.readers.read("look for tasks to check in", read).await
    }

    async fn list_tasks(&self, query: Query, after: Option<TaskKey>, most: usize) -> Result<Vec<Task>> {
        let read = move |file: &Connection| list::list(file, &query, after.as_ref(), most);
        self.inner.readers.read("list tasks in", read).await
    }

    async fn task_depths(&self) -> Result<BTreeMap<String, Depth>> {
        self.inner.readers.read("count tasks in", list::depths).await
    }

    async fn registered(&self) -> Result<Vec<Registered>> {
        self.inner.readers.read("read the reactions in", registry::all).await
    }

    async fn register(&self, seen: Option<u64>, reaction: Registered) -> Result<bool> {
        self.inner.writer.run(registry::RegisterWork { seen, reaction }).await
    }

    async fn take_lease(&self, name: &str, owner: &str, length: Duration) -> Result<Option<u64>> {
        let work = leases::TakeWork { name: name.to_owned(), owner: owner.to_owned(), length };
        self.inner.writer.run(work).await
    }

    async fn give_lease(&self, name: &str, owner: &str) -> Result<()> {
        let work = leases::GiveWork { name: name.to_owned(), owner: owner.to_owned() };
        self.inner.writer.run(work).await
    }

    async fn beat(&self, worker: &str, length: Duration) -> Result<()> {
        self.inner.writer.run(leases::BeatWork { worker: worker.to_owned(), length }).await
    }

    async fn living(&self) -> Result<BTreeSet<String>> {
        self.inner.readers.read("read the heartbeats in", leases::living).await
    }

    async fn feed_place(&self, name: &str) -> Result<Option<String>> {
        let name = name.to_owned();
        self.inner
            .readers
            .read("read the place of a feed in", move |file| feed::place::read(file, &name))
            .await
    }

    async fn put_feed_place(&self, name: &str, lease: u64, place: Option<String>) -> Result<bool> {
        let work = feed::place::PlaceWork { name: name.to_owned(), lease, place };
        self.inner.writer.run(work).await
    }

    async fn wake(&self) -> Result<()> {
        self.inner.writer.run(wake::WakeWork).await
    }

    async fn woken(&self, since: u64, patience: Duration) -> Result<u64> {
        self.wait_for_wake(since, patience).await
    }
}

#[cfg(test)]
mod tests;
