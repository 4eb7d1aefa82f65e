//! The data of reactions, in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, timeout};

use super::{Memory, State};
use crate::env::{Env as _, System};
use crate::error::Result;
use crate::event::DocumentId;
use crate::json::Json;
use crate::react::{
    Depth, DocumentFeed, DocumentSource, DueTasks, ExternalCollection, FeedChanges, FeedItem, FoundDocument,
    FoundDocuments, Query, ReactionStore, Registered, Suspicion, Task, TaskChange, TaskKey, WantedTasks,
};

/// Tasks, reactions and workers.
#[derive(Debug)]
pub(super) struct Kept {
    /// The time of day at creation, and the instant of that. From then on time passes by tokio's
    /// clock, which tests can pause.
    begun: (Timestamp, Instant),
    plain: HashMap<ExternalCollection, BTreeMap<DocumentId, Json>>,
    followed: BTreeSet<DocumentSource>,
    /// Documents that were written or deleted; `None` if any document may have changed.
    journal: Vec<(DocumentSource, Option<DocumentId>)>,
    /// The number of journal entries that were dropped.
    forgotten: usize,
    tasks: BTreeMap<TaskKey, Task>,
    registered: BTreeMap<String, Registered>,
    leases: HashMap<String, Lease>,
    /// The workers that sent a heartbeat, and the time until which it is valid.
    workers: BTreeMap<String, Timestamp>,
    places: HashMap<String, String>,
    stirs: u64,
}

#[derive(Debug)]
struct Lease {
    owner: Option<String>,
    until: Timestamp,
    number: u64,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            begun: (System.now(), Instant::now()),
            plain: HashMap::new(),
            followed: BTreeSet::new(),
            journal: Vec::new(),
            forgotten: 0,
            tasks: BTreeMap::new(),
            registered: BTreeMap::new(),
            leases: HashMap::new(),
            workers: BTreeMap::new(),
            places: HashMap::new(),
            stirs: 0,
        }
    }
}

impl Kept {
    /// Records that a document was written or deleted.
    pub(super) fn wrote(&mut self, on: DocumentSource, id: &DocumentId) {
        if self.followed.contains(&on) {
            self.journal.push((on, Some(id.clone())));
        }
    }

    /// Records that any of these documents may have changed.
    pub(super) fn lost(&mut self, on: DocumentSource) {
        if self.followed.contains(&on) {
            self.journal.push((on, None));
        }
    }

    /// Writes or deletes a document that belongs to no projection.
    pub(super) fn put_plain(&mut self, plain: &ExternalCollection, id: DocumentId, body: Option<Json>) {
        self.wrote(DocumentSource::External(plain.clone()), &id);
        let documents = self.plain.entry(plain.clone()).or_default();
        match body {
            Some(body) => drop(documents.insert(id, body)),
            None => drop(documents.remove(&id)),
        }
    }

    fn now(&self) -> Timestamp {
        let (day, begun) = self.begun;
        crate::react::later(day, begun.elapsed())
    }
}

impl State {
    pub(super) fn document(&self, on: &DocumentSource, id: &DocumentId) -> Option<Json> {
        match on {
            DocumentSource::Projection(collection) => self.collection(collection).ok()?.get(id)?.1.clone(),
            DocumentSource::External(collection) => self.reacting.plain.get(collection)?.get(id).cloned(),
        }
    }
}

impl Memory {
    /// Returns the same store with another time of day from now on, for simulations, whose runs
    /// must be reproducible.
    #[must_use]
    pub fn with_time(self, now: Timestamp) -> Self {
        self.state().reacting.begun = (now, Instant::now());
        self
    }

    /// Writes a document of a collection that belongs to no projection, as any process might.
    /// Without a body, it deletes the document.
    pub fn write_plain(&self, plain: &ExternalCollection, id: DocumentId, body: Option<Json>) {
        {
            let mut state = self.state();
            state.reacting.put_plain(plain, id, body);
        }
        self.0.changed.notify_waiters();
    }

    /// Drops all changes so far: feeds that have not read them must compare.
    pub fn forget_changes(&self) {
        let mut state = self.state();
        let reacting = &mut state.reacting;
        reacting.forgotten += reacting.journal.len();
        reacting.journal.clear();
    }
}

/// Changes of documents in memory.
#[derive(Debug)]
pub struct MemoryFeed {
    memory: Memory,
    on: BTreeSet<DocumentSource>,
    at: usize,
}

impl DocumentFeed for MemoryFeed {
    async fn next(&mut self, most: usize, patience: Duration) -> Result<FeedItem> {
        let at = self.at;
        let grown = self.memory.until(|state| {
            let reacting = &state.reacting;
            (at < reacting.forgotten || at < reacting.forgotten + reacting.journal.len()).then_some(())
        });
        let _ = timeout(patience, grown).await;
        let state = self.memory.state();
        let reacting = &state.reacting;
        let Some(from) = at.checked_sub(reacting.forgotten) else {
            return Ok(FeedItem::Lost("the changes are no longer kept".to_owned()));
        };
        let mut changes = FeedChanges::default();
        let new = reacting.journal.get(from..).unwrap_or_default().iter().take(most.max(1));
        self.at += new.len();
        for (on, id) in new.filter(|(on, _)| self.on.contains(on)) {
            let Some(id) = id else { return Ok(FeedItem::Lost(format!("{on} was created again"))) };
            changes.documents.entry(on.clone()).or_default().insert(id.clone());
        }
        changes.through = self.at.to_string();
        Ok(FeedItem::Changes(changes))
    }
}

impl ReactionStore for Memory {
    type Feed = MemoryFeed;

    async fn prepare_reactions(&self, on: &[DocumentSource]) -> Result<()> {
        self.state().reacting.followed.extend(on.iter().cloned());
        Ok(())
    }

    async fn time(&self) -> Result<Timestamp> {
        Ok(self.state().reacting.now())
    }

    async fn current_documents(
        &self,
        on: &DocumentSource,
        ids: Vec<DocumentId>,
        bytes: usize,
    ) -> Result<FoundDocuments> {
        let state = self.state();
        let mut found = FoundDocuments::default();
        for id in ids {
            if found.is_full(bytes) {
                found.left.push(id);
            } else if let Some(body) = state.document(on, &id) {
                found.push(FoundDocument::new(id, body));
            }
        }
        Ok(found)
    }

    async fn page_of_ids(
        &self,
        on: &DocumentSource,
        after: Option<DocumentId>,
        most: usize,
    ) -> Result<Vec<DocumentId>> {
        let state = self.state();
        let range = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        Ok(match on {
            DocumentSource::Projection(collection) => {
                let found = state.collection(collection)?.range(range);
                found.filter(|(_, (_, body))| body.is_some()).map(|(id, _)| id.clone()).take(most).collect()
            }
            DocumentSource::External(collection) => {
                let found = state
                    .reacting
                    .plain
                    .get(collection)
                    .into_iter()
                    .flat_map(|kept| kept.range(range.clone()));
                found.map(|(id, _)| id.clone()).take(most).collect()
            }
        })
    }

    async fn follow(&self, on: Vec<DocumentSource>, from: Option<String>) -> Result<MemoryFeed> {
        let state = self.state();
        let now = state.reacting.forgotten + state.reacting.journal.len();
        let at = from.map_or(now, |from| from.parse().unwrap_or(0));
        Ok(MemoryFeed { memory: self.clone(), on: on.into_iter().collect(), at })
    }

    async fn load_tasks(&self, keys: Vec<TaskKey>) -> Result<Vec<Task>> {
        let state = self.state();
        Ok(keys.iter().filter_map(|key| state.reacting.tasks.get(key).cloned()).collect())
    }

    async fn save_tasks(&self, changes: Vec<TaskChange>) -> Result<Vec<TaskKey>> {
        let mut state = self.state();
        let tasks = &mut state.reacting.tasks;
        let mut refused = Vec::new();
        for change in changes {
            let there = tasks.get(change.key()).map(|task| task.version);
            match change {
                TaskChange::Insert(task) if there.is_none() => drop(tasks.insert(task.key.clone(), task)),
                TaskChange::Update(seen, task) if there == Some(seen) => {
                    tasks.insert(task.key.clone(), task);
                }
                TaskChange::Delete(seen, key) if there == Some(seen) => drop(tasks.remove(&key)),
                refused_change => refused.push(refused_change.key().clone()),
            }
        }
        Ok(refused)
    }

    async fn due_tasks(&self, wanted: Vec<WantedTasks>) -> Result<DueTasks> {
        let state = self.state();
        let reacting = &state.reacting;
        let now = reacting.now();
        let mut due = DueTasks { now, ..DueTasks::default() };
        for WantedTasks { reaction, version, most, suspicion } in wanted {
            let registered = reacting.registered.get(&reaction);
            due.codes.extend(registered.map(|registered| (reaction.clone(), registered.code)));
            if registered.is_some_and(|registered| registered.paused) {
                continue;
            }
            let throttled =
                registered.and_then(|registered| registered.throttled).filter(|until| *until > now);
            let of =
                |task: &&Task| task.key.reaction == reaction && task.needs <= version && task.can_be_due();
            let (mut tasks, others): (Vec<_>, Vec<_>) =
                reacting.tasks.values().filter(of).partition(|task| task.waits_under() == suspicion);
            if suspicion == Suspicion::None {
                for task in others {
                    let at = throttled.max(task.due).unwrap_or(now);
                    let first = due.suspects.entry(task.suspicion).or_insert(at);
                    *first = at.min(*first);
                }
            }
            tasks.sort_by_key(|task| task.due);
            let first = tasks.first().and_then(|task| task.due);
            if throttled.is_some() || first.is_none_or(|first| first > now) {
                let next = first.map(|first| throttled.map_or(first, |until| until.max(first)));
                due.next = [due.next, next].into_iter().flatten().min();
                continue;
            }
            due.tasks.extend(tasks.into_iter().filter(|task| task.is_due(now)).take(most).cloned());
        }
        Ok(due)
    }

    async fn tasks_to_check(&self, reactions: Vec<String>, most: usize) -> Result<DueTasks> {
        let state = self.state();
        let now = state.reacting.now();
        let of = |task: &&Task| reactions.contains(&task.key.reaction) && task.check_at.is_some();
        let mut tasks: Vec<_> = state.reacting.tasks.values().filter(of).collect();
        tasks.sort_by_key(|task| task.check_at);
        let next = tasks.first().and_then(|task| task.check_at).filter(|first| *first > now);
        let due = tasks.into_iter().filter(|task| task.check_at.is_some_and(|at| at <= now));
        Ok(DueTasks { tasks: due.take(most).cloned().collect(), next, now, ..DueTasks::default() })
    }

    async fn list_tasks(&self, query: Query, after: Option<TaskKey>, most: usize) -> Result<Vec<Task>> {
        let state = self.state();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let tasks = state.reacting.tasks.range((from, Bound::Unbounded)).map(|(_, task)| task);
        Ok(tasks.filter(|task| query.is(task)).take(most).cloned().collect())
    }

    async fn task_depths(&self) -> Result<BTreeMap<String, Depth>> {
        let state = self.state();
        let mut depths: BTreeMap<String, Depth> = BTreeMap::new();
        for task in state.reacting.tasks.values() {
            depths.entry(task.key.reaction.clone()).or_default().count(task, state.reacting.now());
        }
        Ok(depths)
    }

    async fn registered(&self) -> Result<Vec<Registered>> {
        Ok(self.state().reacting.registered.values().cloned().collect())
    }

    async fn register(&self, seen: Option<u64>, reaction: Registered) -> Result<bool> {
        let is_kept = {
            let mut state = self.state();
            let registered = &mut state.reacting.registered;
            let is_seen = registered.get(&reaction.name).map(|there| there.version) == seen;
            if is_seen {
                registered.insert(reaction.name.clone(), reaction);
            }
            is_seen
        };
        self.0.changed.notify_waiters();
        Ok(is_kept)
    }

    async fn take_lease(&self, name: &str, owner: &str, length: Duration) -> Result<Option<u64>> {
        let mut state = self.state();
        let now = state.reacting.now();
        let lease = state.reacting.leases.entry(name.to_owned());
        let lease = lease.or_insert(Lease { owner: None, until: now, number: 0 });
        let is_ours = lease.owner.as_deref() == Some(owner);
        if !is_ours && lease.owner.is_some() && lease.until > now {
            return Ok(None);
        }
        if !is_ours {
            lease.number += 1;
        }
        lease.owner = Some(owner.to_owned());
        lease.until = crate::react::later(now, length);
        Ok(Some(lease.number))
    }

    async fn give_lease(&self, name: &str, owner: &str) -> Result<()> {
        let mut state = self.state();
        let lease = state.reacting.leases.get_mut(name).filter(|lease| lease.owner.as_deref() == Some(owner));
        if let Some(lease) = lease {
            lease.owner = None;
        }
        Ok(())
    }

    async fn beat(&self, worker: &str, length: Duration) -> Result<()> {
        let mut state = self.state();
        let reacting = &mut state.reacting;
        let now = reacting.now();
        reacting.workers.retain(|_, until| *until > now);
        reacting.workers.insert(worker.to_owned(), crate::react::later(now, length));
        Ok(())
    }

    async fn living(&self) -> Result<BTreeSet<String>> {
        let state = self.state();
        let now = state.reacting.now();
        let living = state.reacting.workers.iter().filter(|(_, until)| **until > now);
        Ok(living.map(|(worker, _)| worker.clone()).collect())
    }

    async fn feed_place(&self, name: &str) -> Result<Option<String>> {
        Ok(self.state().reacting.places.get(name).cloned())
    }

    async fn put_feed_place(&self, name: &str, lease: u64, place: Option<String>) -> Result<bool> {
        let mut state = self.state();
        let reacting = &mut state.reacting;
        if reacting.leases.get(name).is_none_or(|kept| kept.number != lease) {
            return Ok(false);
        }
        match place {
            Some(place) => drop(reacting.places.insert(name.to_owned(), place)),
            None => drop(reacting.places.remove(name)),
        }
        Ok(true)
    }

    async fn wake(&self) -> Result<()> {
        self.state().reacting.stirs += 1;
        self.0.changed.notify_waiters();
        Ok(())
    }

    async fn woken(&self, since: u64, patience: Duration) -> Result<u64> {
        let stirred = self.until(|state| (state.reacting.stirs != since).then_some(state.reacting.stirs));
        timeout(patience, stirred).await.unwrap_or(Ok(since))
    }
}
