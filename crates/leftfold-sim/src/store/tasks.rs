//! The simulated store's operations for tasks and reactions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use leftfold::react::{
    Depth, DocumentSource, DueTasks, FoundDocuments, Query, ReactionStore, Registered, Task, TaskChange,
    TaskKey, WantedTasks,
};
use leftfold::{DocumentId, Error, Kind, Result, mutant};

use super::calls::LATE;
use super::changes::SimFeed;
use super::handle::SimStore;
use super::sabotage;
use crate::faults::Fault;
use crate::reactions::Thing;
use crate::reactions::ledger::{Sometimes, Wrote};

impl ReactionStore for SimStore {
    type Feed = SimFeed;

    async fn prepare_reactions(&self, on: &[DocumentSource]) -> Result<()> {
        self.answer("prepare", self.inner().prepare_reactions(on)).await
    }

    async fn time(&self) -> Result<Timestamp> {
        self.answer("time", async {
            let time = self.inner().time().await?;
            if self.strikes(Fault::Slow) {
                self.shared.ledger.gone(&self.name, LATE / 2);
                self.takes(LATE / 2).await;
            }
            Ok(time)
        })
        .await
    }

    async fn current_documents(
        &self,
        on: &DocumentSource,
        ids: Vec<DocumentId>,
        bytes: usize,
    ) -> Result<FoundDocuments> {
        let found = async { readable(self.inner().current_documents(on, ids, bytes).await?) };
        self.answer("read documents", found).await
    }

    async fn page_of_ids(
        &self,
        on: &DocumentSource,
        after: Option<DocumentId>,
        most: usize,
    ) -> Result<Vec<DocumentId>> {
        self.answer("page documents", self.inner().page_of_ids(on, after, most)).await
    }

    async fn follow(&self, on: Vec<DocumentSource>, from: Option<String>) -> Result<SimFeed> {
        self.answer("follow", SimFeed::open(self.clone(), on, from)).await
    }

    async fn load_tasks(&self, keys: Vec<TaskKey>) -> Result<Vec<Task>> {
        self.answer("load tasks", self.inner().load_tasks(keys)).await
    }

    async fn save_tasks(&self, changes: Vec<TaskChange>) -> Result<Vec<TaskKey>> {
        self.answer("save tasks", async {
            check_sizes(&changes)?;
            let (mut changes, mut stormed) = (changes, Vec::new());
            let dice = self.shared.faults.dice();
            if changes.len() > 1 && self.strikes(Fault::Disorder) {
                dice.shuffle(&mut changes);
            }
            if self.strikes(Fault::Storm) {
                self.shared.ledger.trouble(&self.name);
                let (refused, kept) = changes.into_iter().partition(|_| dice.happens(500));
                stormed = refused;
                changes = kept;
            }
            let mut ends = None;
            if !changes.is_empty() && self.strikes(Fault::Halfway) {
                changes.truncate(usize::try_from(dice.below(changes.len() as u64)).unwrap_or(0));
                self.shared.ledger.trouble(&self.name);
                ends = Some(Error::new(Kind::Unknown, "save tasks: a part may be written"));
            }
            let refused =
                self.written("save tasks", self.clone().change_tasks(changes, Wrote::Alone)).await?;
            let stormed = stormed.iter().map(|change| change.key().clone());
            ends.map_or_else(|| Ok(refused.into_iter().chain(stormed).collect()), Err)
        })
        .await
    }

    async fn due_tasks(&self, wanted: Vec<WantedTasks>) -> Result<DueTasks> {
        self.answer("find due tasks", async {
            let due = self.inner().due_tasks(wanted).await?;
            self.shared.ledger.offered(&self.name, &due.tasks);
            Ok(due)
        })
        .await
    }

    async fn tasks_to_check(&self, reactions: Vec<String>, most: usize) -> Result<DueTasks> {
        self.answer("find tasks to check", self.inner().tasks_to_check(reactions, most)).await
    }

    async fn list_tasks(&self, query: Query, after: Option<TaskKey>, most: usize) -> Result<Vec<Task>> {
        self.answer("list tasks", self.inner().list_tasks(query, after, most)).await
    }

    async fn task_depths(&self) -> Result<BTreeMap<String, Depth>> {
        self.answer("count tasks", self.inner().task_depths()).await
    }

    async fn registered(&self) -> Result<Vec<Registered>> {
        self.answer("list reactions", self.inner().registered()).await
    }

    async fn register(&self, seen: Option<u64>, reaction: Registered) -> Result<bool> {
        let store = self.clone();
        let write = async move {
            let Registered { name, code, paused, throttled, comparing, .. } = reaction.clone();
            let kept = store.inner().register(seen, sabotage::registered(reaction)).await?;
            store.shared.trace.note(|| {
                format!(
                    "{}: registers {name}, code {code}, paused {paused}, throttled {throttled:?}, comparing {comparing:?}: {kept}",
                    store.name
                )
            });
            Ok(kept)
        };
        self.answer("register", self.written("register", write)).await
    }

    async fn take_lease(&self, name: &str, owner: &str, length: Duration) -> Result<Option<u64>> {
        let write = self.clone().take_or_steal_lease(name.to_owned(), owner.to_owned(), length);
        self.answer("take a lease", self.written("take a lease", write)).await
    }

    async fn give_lease(&self, name: &str, owner: &str) -> Result<()> {
        let (store, name, owner) = (self.clone(), name.to_owned(), owner.to_owned());
        let write = async move { store.inner().give_lease(&name, &owner).await };
        self.answer("return a lease", self.written("return a lease", write)).await
    }

    async fn beat(&self, worker: &str, length: Duration) -> Result<()> {
        let (store, worker) = (self.clone(), worker.to_owned());
        let write = async move {
            store.shared.ledger.beat(&worker, length);
            store.inner().beat(&worker, length).await
        };
        self.answer("beat", self.written("beat", write)).await
    }

    async fn living(&self) -> Result<BTreeSet<String>> {
        self.answer("list live workers", self.inner().living()).await
    }

    async fn feed_place(&self, name: &str) -> Result<Option<String>> {
        self.answer("read a feed's position", self.inner().feed_place(name)).await
    }

    async fn put_feed_place(&self, name: &str, lease: u64, place: Option<String>) -> Result<bool> {
        let (store, name) = (self.clone(), name.to_owned());
        let write = async move {
            let kept = store.inner().put_feed_place(&name, lease, place.clone()).await?;
            store
                .shared
                .trace
                .note(|| format!("{}: {name:?} is at {place:?}, lease {lease}: {kept}", store.name));
            Ok(kept)
        };
        self.answer("store a feed's position", self.written("store a feed's position", write)).await
    }

    async fn wake(&self) -> Result<()> {
        self.answer("wake", self.inner().wake()).await
    }

    async fn woken(&self, since: u64, patience: Duration) -> Result<u64> {
        self.answer("wait for a wake-up", self.inner().woken(since, patience)).await
    }
}

impl SimStore {
    /// Changes tasks in the inner store and reports them to the ledger. Returns the rejected ones.
    pub(super) async fn change_tasks(self, changes: Vec<TaskChange>, how: Wrote) -> Result<Vec<TaskKey>> {
        let mut refused = Vec::new();
        for change in changes {
            let key = change.key().clone();
            let before = self.inner().load_tasks(vec![key.clone()]).await?.pop();
            let change = sabotage::task(change, before.as_ref(), how);
            if !self.inner().save_tasks(vec![change]).await?.is_empty() {
                self.shared.trace.note(|| format!("{}: {} is rejected", self.name, in_short(&key)));
                self.shared.ledger.happened(Sometimes::Refused);
                refused.push(key);
                continue;
            }
            let after = self.inner().load_tasks(vec![key.clone()]).await?.pop();
            self.shared.trace.note(|| {
                let task = after.as_ref().map_or_else(|| "gone".to_owned(), task_in_short);
                format!("{}: {} is {task}", self.name, in_short(&key))
            });
            for violation in self.shared.ledger.saw(&key, before.as_ref(), after, &self.name, how) {
                self.violated(violation);
            }
        }
        Ok(refused)
    }
}

/// Returns documents as the store reads them: a torn document can't be read.
pub(super) fn readable(mut found: FoundDocuments) -> Result<FoundDocuments> {
    for document in &mut found.documents {
        let body = document.body.as_ref().ok().and_then(|body| body.json().to::<Thing>().ok());
        if body.is_some_and(|thing| thing.is_torn()) {
            mutant!(UnreadableStopsAll => return Err(unreadable(&document.id)));
            document.body = Err("the document is torn".to_owned());
        }
    }
    Ok(found)
}

fn unreadable(id: &DocumentId) -> Error {
    Error::new(Kind::Store, format!("{id} can't be read"))
}

/// Rejects tasks that are too large for any store.
fn check_sizes(changes: &[TaskChange]) -> Result<()> {
    const MOST: usize = 512 << 10;
    for change in changes {
        let (TaskChange::Insert(task) | TaskChange::Update(_, task)) = change else { continue };
        let errors = task.history.iter().filter_map(|run| run.error.as_ref()).chain(&task.error);
        let bytes: usize = errors.map(String::len).sum();
        if bytes > MOST {
            let message = format!("save tasks: the task of {} has {bytes} bytes", in_short(&task.key));
            return Err(Error::new(Kind::Invalid, message));
        }
    }
    Ok(())
}

fn in_short(key: &TaskKey) -> String {
    format!("{}/{}", key.reaction, key.document)
}

fn task_in_short(task: &Task) -> String {
    let Task { state, inside, epoch, generation, watched, attempts, check_at, suspicion, .. } = task;
    let inside = if *inside { "inside" } else { "outside" };
    let check = if check_at.is_some() { ", to be checked" } else { "" };
    format!(
        "{state:?}, {inside}, claim {epoch}, generation {generation} {}, attempt {attempts}, suspicion {}{check}",
        watched.as_str(),
        suspicion.level(),
    )
}
