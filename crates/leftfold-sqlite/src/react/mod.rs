//! The store of reactions: documents and their changes, tasks, leases, wake-ups.
//!
//! Triggers write changes to a journal in the transaction that changes a document, so that changes
//! by any program are seen. Time-based decisions use the store's time, which is shared by all
//! processes that have the file open.

mod complete;
mod documents;
pub(crate) mod feed;
mod inside;
mod leases;
mod registry;
mod tasks;
mod triggers;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use leftfold::react::{
    Depth, DocumentSource, DueTasks, FoundDocuments, Query, ReactionStore, Registered, Task, TaskChange,
    TaskKey, WantedTasks,
};
use leftfold::{DocumentId, Result};
use rusqlite::Connection;
use tokio::time::{Instant, timeout_at};

use crate::Sqlite;
use crate::clock;
use crate::error::Failure;

pub use complete::InTransaction;
pub(crate) use documents::check as check_plain;
pub use feed::SqliteFeed;
pub use inside::{document_in, save_task_in, task_in};
pub(crate) use leases::stirs;
pub(crate) use registry::all as registered;
pub(crate) use triggers::{are_followed, switch_followed};

impl ReactionStore for Sqlite {
    type Feed = SqliteFeed;

    async fn prepare_reactions(&self, on: &[DocumentSource]) -> Result<()> {
        let on = on.to_vec();
        let asked = on.clone();
        let doing = "look for followed documents in";
        if self.inner.readers.read(doing, move |file| are_followed(file, &asked)).await? {
            return Ok(());
        }
        self.inner.writer.run(triggers::FollowWork(on)).await
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
        self.inner.readers.read("look for due tasks in", move |file| tasks::due(file, &wanted)).await
    }

    async fn tasks_to_check(&self, reactions: Vec<String>, most: usize) -> Result<DueTasks> {
        let read = move |file: &Connection| tasks::to_check(file, &reactions, most);
        self.inner.readers.read("look for tasks to check in", read).await
    }

    async fn list_tasks(&self, query: Query, after: Option<TaskKey>, most: usize) -> Result<Vec<Task>> {
        let read = move |file: &Connection| tasks::list(file, &query, after.as_ref(), most);
        self.inner.readers.read("list tasks in", read).await
    }

    async fn task_depths(&self) -> Result<BTreeMap<String, Depth>> {
        self.inner.readers.read("count tasks in", tasks::depths).await
    }

    async fn registered(&self) -> Result<Vec<Registered>> {
        self.inner.readers.read("look for reactions in", registry::all).await
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
        self.inner.readers.read("look for living workers in", leases::living).await
    }

    async fn feed_place(&self, name: &str) -> Result<Option<String>> {
        let name = name.to_owned();
        self.inner
            .readers
            .read("look for a feed's place in", move |file| feed::journal::place(file, &name))
            .await
    }

    async fn put_feed_place(&self, name: &str, lease: u64, place: Option<String>) -> Result<bool> {
        let work = feed::journal::PlaceWork { name: name.to_owned(), lease, place };
        self.inner.writer.run(work).await
    }

    async fn wake(&self) -> Result<()> {
        self.inner.writer.run(leases::StirWork).await
    }

    async fn woken(&self, since: u64, patience: Duration) -> Result<u64> {
        let end = Instant::now().checked_add(patience);
        let (_waiting, mut known) = self.inner.board.wait()?;
        loop {
            let seen = known.borrow_and_update().stirs;
            let stirs = self.inner.readers.read("wait for tasks in", stirs).await?;
            // The wait can't fail: this handle keeps the board alive.
            let news = known.wait_for(|known| known.stirs != seen);
            if stirs != since || is_over(end, news).await {
                return Ok(stirs);
            }
        }
    }
}

/// Waits until `end`, or forever if there is none. Returns whether the time is up.
async fn is_over(end: Option<Instant>, wait: impl Future) -> bool {
    let Some(end) = end else {
        wait.await;
        return false;
    };
    timeout_at(end, wait).await.is_err()
}

/// Converts a time for storage, rounded up.
fn micros(time: Timestamp) -> i64 {
    let micros = time.as_microsecond();
    micros + i64::from(time.as_nanosecond() > i128::from(micros) * 1_000)
}

/// Converts a stored time. The latest possible time lies between two microseconds.
fn timestamp(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX)
}

/// Converts a number for `LIMIT`.
fn count(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
