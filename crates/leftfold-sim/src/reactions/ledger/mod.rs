//! The invariants of reactions, checked at every change of a task and at every effect. The code
//! shares nothing with the engine.
//!
//! - I4: An effect recorded in the transaction that completes its task is recorded once for each
//!   cause, and never without a cause. No such task is done without its effect.
//! - I5: An effect outside the store names its cause by its key. The key is the same for all
//!   attempts, and differs for the next state. A handled state was true at the time. Nothing that
//!   is done is done again.
//! - I10: In the end the last state of every matching document is handled, and no task waits.
//! - I12: Only the worker that holds a claim ends it. A lost claim ends the run, and such losses
//!   are bounded. A healthy worker does not lose a claim.
//! - I14: A claim that is lost with its process counts as an attempt only if no other handler ran
//!   beside it. A worker that sent a heartbeat raises no suspicion.
//! - I13: No run begins that is paused, throttled, or needs newer code. The numbers of a lock
//!   increase and are unique.

mod claims;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leftfold::DocumentId;
use leftfold::react::{State as Is, Suspicion, Task, TaskKey};
use serde_json::Value;
use tokio::time::Instant;

use crate::fuse::Fuse;

/// The way in which a task was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrote {
    /// On its own.
    Alone,
    /// In a transaction with an effect.
    InTransaction,
}

/// An effect recorded in a transaction.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    key: TaskKey,
    idempotency_key: String,
    watched: String,
    revision: Option<u64>,
}

impl Effect {
    pub(crate) fn of(task: &Task, revision: Option<u64>) -> Self {
        let (key, watched) = (task.key.clone(), task.watched.as_str().to_owned());
        Self { key, idempotency_key: task.idempotency_key(), watched, revision }
    }

    pub(super) fn is_of(&self, key: &TaskKey) -> bool {
        self.key == *key
    }

    pub(super) fn revision(&self) -> Option<u64> {
        self.revision
    }
}

/// Things that happen in some runs.
pub(crate) const SOMETIMES: [&str; 20] = [
    "tasks taken over",
    "collections taken over",
    "locks taken over",
    "runs that were stale",
    "runs deferred",
    "reactions held up",
    "reactions paused",
    "claims given back",
    "runs cancelled",
    "tasks failed for good",
    "tasks that ended with their processes",
    "tasks run again by hand",
    "tasks forgotten",
    "changes of tasks refused",
    "changes of documents lost",
    "transactions that can't be told",
    "tasks left to newer code",
    "tasks suspected",
    "suspects run alone",
    "suspicions lifted",
];

#[derive(Clone, Copy)]
pub(crate) enum Sometimes {
    TakenOver,
    Collections,
    Locks,
    Stale,
    Deferred,
    HeldUp,
    Paused,
    GivenBack,
    Cancelled,
    Failed,
    Poisoned,
    ByHand,
    Forgotten,
    Refused,
    LostFeeds,
    Unknown,
    Newer,
    Suspected,
    Alone,
    Acquitted,
}

/// The longest time from the last renewal of a lock until its loss, with some margin.
const LOCKED: Duration = Duration::from_secs(8);

/// Checks the reactions of a run.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// The maximum number of attempts. `visibility` is the duration of a claim.
    pub(super) attempts: u32,
    pub(super) visibility: Duration,
    /// The number of writes of all documents.
    writes: u64,
    /// The states of each document, each with the number of its write.
    pub(super) documents: BTreeMap<DocumentId, Vec<(u64, Option<Value>)>>,
    pub(super) tasks: BTreeMap<TaskKey, Known>,
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) sent: BTreeMap<String, Vec<Sent>>,
    pub(super) effects: BTreeMap<String, Vec<Effect>>,
    /// The last times at which nodes were offered tasks.
    offered: BTreeMap<(String, TaskKey), Instant>,
    holdups: BTreeMap<String, Holdup>,
    /// The length of the log when each reaction began to follow it.
    pub(super) followed: BTreeMap<String, u64>,
    locked: BTreeMap<u64, String>,
    /// The lock numbers held now, and their nodes.
    holding: BTreeMap<u64, String>,
    /// The running handlers, by node.
    handlers: BTreeMap<String, BTreeMap<Claim, Suspicion>>,
    /// Claims whose handlers ran beside others.
    company: BTreeSet<Claim>,
    /// For each node, the start and the end of its current unbroken series of heartbeats.
    alive: BTreeMap<String, (Instant, Instant)>,
    sometimes: [u64; SOMETIMES.len()],
}

/// A task and the epoch of a claim.
type Claim = (TaskKey, u64);

/// The state of a node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    code: u32,
    fuse: Arc<Fuse>,
    stands_still: bool,
    /// The faults it met, with their time and weight. A node with few faults keeps its claims.
    troubles: Vec<(Instant, u32)>,
    is_over: bool,
}

impl Node {
    fn is_gone(&self) -> bool {
        self.is_over || self.stands_still || self.fuse.is_blown()
    }

    /// Returns whether the node met so many faults within this time that it could lose its claims.
    fn was_troubled(&self, within: Duration) -> bool {
        self.is_gone() || self.troubles_since(Instant::now().checked_sub(within)) >= 2
    }

    fn troubles_since(&self, from: Option<Instant>) -> u32 {
        let recent = self.troubles.iter().filter(|(at, _)| from.is_none_or(|from| *at >= from));
        recent.map(|(_, weight)| *weight).sum()
    }
}

/// The history of a task, by generation.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) last: Option<Task>,
    /// The current claim, and its generation.
    running: Option<(u64, u64)>,
    /// The time of the claim or of its last renewal.
    renewed: Option<Instant>,
    claims: BTreeMap<u64, u32>,
    /// Claims that do not count as attempts.
    forgiven: BTreeMap<u64, u32>,
    pub(super) done: BTreeSet<u64>,
    retried: BTreeMap<u64, u32>,
    /// The version of the code that planned it.
    needs: BTreeMap<u64, u32>,
    /// Claims whose handlers succeeded.
    succeeded: BTreeSet<u64>,
    /// Lost claims that did not count, since a run last ended.
    uncounted: u32,
}

/// An effect outside the store.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) key: TaskKey,
    pub(super) watched: String,
    pub(super) epoch: u64,
    generation: u64,
    pub(super) revision: Option<u64>,
}

/// The times at which a reaction was throttled or paused, as reported to a handler or an operator.
#[derive(Clone, Debug, Default)]
struct Holdup {
    throttled: Option<(Instant, Instant)>,
    paused: Option<Instant>,
    resuming: bool,
}

fn is_lock(lease: &str) -> bool {
    lease.starts_with("lock")
}

impl Ledger {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn happened(&self, what: Sometimes) {
        self.state().sometimes[what as usize] += 1;
    }

    pub(crate) fn sometimes(&self) -> [u64; SOMETIMES.len()] {
        self.state().sometimes
    }

    /// Records the start of a node.
    pub(crate) fn node(&self, name: &str, code: u32, fuse: Arc<Fuse>) {
        let node = Node { code, fuse, stands_still: false, troubles: Vec::new(), is_over: false };
        self.state().nodes.insert(name.to_owned(), node);
    }

    /// Records that these reactions begin to follow the log, which has this length.
    pub(crate) fn follows(&self, reactions: &[&str], events: u64) {
        let mut state = self.state();
        for reaction in reactions {
            state.followed.entry((*reaction).to_owned()).or_insert(events);
        }
    }

    /// Records the end or the death of a node.
    pub(crate) fn node_ends(&self, name: &str) {
        if let Some(node) = self.state().nodes.get_mut(name) {
            node.is_over = true;
        }
    }

    /// Records that a node is paused or continues.
    pub(crate) fn stands_still(&self, name: &str, still: bool) {
        if let Some(node) = self.state().nodes.get_mut(name) {
            node.stands_still = still;
        }
        self.gone(name, Duration::ZERO);
    }

    /// Records a fault of a node.
    pub(crate) fn trouble(&self, name: &str) {
        self.state().trouble(name, Duration::ZERO, 1);
    }

    /// Records that a node is silent for at most this time.
    pub(crate) fn gone(&self, name: &str, most: Duration) {
        self.state().trouble(name, most, 10);
    }

    /// Records that a node has lost a lease without being told.
    pub(crate) fn robbed(&self, node: &str, lease: &str) {
        let mut state = self.state();
        state.trouble(node, Duration::ZERO, 10);
        if is_lock(lease) {
            state.holding.retain(|_, holder| holder != node);
        }
    }

    pub(crate) fn lease_taken_over(&self, name: &str) {
        self.happened(if is_lock(name) { Sometimes::Locks } else { Sometimes::Collections });
    }

    /// Records a write or a deletion of a document.
    pub(crate) fn wrote(&self, id: &DocumentId, document: Option<Value>) {
        let mut state = self.state();
        state.writes += 1;
        let at = state.writes;
        state.documents.entry(id.clone()).or_default().push((at, document));
    }

    /// Returns the number of writes so far.
    pub(crate) fn writes(&self) -> u64 {
        self.state().writes
    }

    /// Checks a handler's read. `asked` is the number of writes at its start.
    pub(crate) fn read(&self, id: &DocumentId, asked: u64, found: &Value, planned: &Value) -> Vec<String> {
        let state = self.state();
        let states = state.documents.get(id).map(Vec::as_slice).unwrap_or_default();
        let was = states.iter().enumerate().any(|(at, (from, document))| {
            let until = states.get(at + 1).map_or(u64::MAX, |(next, _)| *next);
            *from <= state.writes && until > asked && document.as_ref() == Some(found)
        });
        let mut wrong = Vec::new();
        if !was {
            wrong.push(format!("I5: a handler read {id} as {found}, which it was not at that time"));
        }
        if found.get("value") != Some(planned) {
            wrong.push(format!("I5: a handler that was planned for {planned} was given {id} as {found}"));
        }
        wrong
    }

    /// Records that these tasks were offered to a node as due.
    pub(crate) fn offered(&self, node: &str, tasks: &[Task]) {
        let mut state = self.state();
        for task in tasks {
            state.offered.insert((node.to_owned(), task.key.clone()), Instant::now());
        }
    }

    /// Records that a handler was told that its reaction is throttled until `until`.
    pub(crate) fn throttled(&self, reaction: &str, until: Instant) {
        self.happened(Sometimes::HeldUp);
        let mut state = self.state();
        let holdup = state.holdups.entry(reaction.to_owned()).or_default();
        if !holdup.resuming {
            let until = holdup.throttled.map_or(until, |(_, before)| before.max(until));
            holdup.throttled = Some((Instant::now(), until));
        }
    }

    /// Records that an operator was told that a reaction is paused.
    pub(crate) fn paused(&self, reaction: &str) {
        self.happened(Sometimes::Paused);
        self.state().holdups.entry(reaction.to_owned()).or_default().paused = Some(Instant::now());
    }

    /// Records that an operator starts to resume a reaction, or has resumed it.
    pub(crate) fn resumes(&self, reaction: &str, begins: bool) {
        let mut state = self.state();
        *state.holdups.entry(reaction.to_owned()).or_default() =
            Holdup { resuming: begins, ..Holdup::default() };
    }

    /// Records that a handler has the lock with this number. Returns the violations.
    pub(crate) fn locked(&self, number: u64, asked_after: u64, node: &str, who: &str) -> Vec<String> {
        let mut state = self.state();
        let mut wrong = Vec::new();
        for (other, holder) in &state.holding {
            if !state.nodes.get(holder).is_none_or(|holder| holder.was_troubled(LOCKED)) {
                wrong.push(format!(
                    "I13: {who} has the lock, and {holder} is well and has it as number {other}"
                ));
            }
        }
        state.holding.insert(number, node.to_owned());
        if number <= asked_after {
            wrong.push(format!(
                "I13: {who} has the lock's number {number}, and another had {asked_after} before"
            ));
        }
        match state.locked.insert(number, who.to_owned()) {
            Some(other) if other != who => {
                wrong.push(format!("I13: {who} and {other} have the lock with the number {number}"));
            }
            _ => {}
        }
        wrong
    }

    /// Records that a handler no longer has the lock.
    pub(crate) fn unlocked(&self, number: u64) {
        self.state().holding.remove(&number);
    }

    /// Returns the highest lock number so far.
    pub(crate) fn highest_lock(&self) -> u64 {
        self.state().locked.keys().next_back().copied().unwrap_or(0)
    }

    /// Records an effect outside the store. Returns the violations.
    pub(crate) fn sent(&self, task: &Task, revision: Option<u64>) -> Vec<String> {
        let sent = Sent {
            key: task.key.clone(),
            watched: task.watched.as_str().to_owned(),
            epoch: task.epoch,
            generation: task.generation,
            revision,
        };
        let mut wrong = Vec::new();
        let (id, mut state) = (task.idempotency_key(), self.state());
        let others = state.sent.entry(id.clone()).or_default();
        let same = |other: &Sent| {
            (&other.key, &other.watched, other.revision) == (&sent.key, &sent.watched, sent.revision)
        };
        if !others.iter().all(same) {
            wrong.push(format!("I5: the key {id} names different causes"));
        }
        if others.iter().any(|other| other.epoch == sent.epoch) {
            wrong.push(format!("I5: {id} was sent twice by one run"));
        }
        let retried = |sent: &Sent| state.tasks.get(&sent.key).is_some_and(|known| !known.retried.is_empty());
        // The same event or state must not have another key.
        let is_same = |one: &Sent| {
            let same =
                if revision.is_some() { one.revision == revision } else { one.generation == sent.generation };
            one.key == sent.key && same
        };
        let other = state.sent.iter().find(|(other, all)| **other != id && all.iter().any(is_same));
        if let Some((other, _)) = other.filter(|_| !retried(&sent)) {
            wrong.push(format!("I5: one cause is named {other} and {id}"));
        }
        state.sent.entry(id).or_default().push(sent);
        wrong
    }

    /// Records the start of a handler. Returns the violations.
    pub(crate) fn began(&self, node: &str, task: &Task) -> Vec<String> {
        let mut state = self.state();
        let (claim, suspicion) = ((task.key.clone(), task.epoch), task.suspicion);
        let running = state.handlers.entry(node.to_owned()).or_default();
        let beside = running.clone();
        running.insert(claim.clone(), suspicion);
        if beside.is_empty() {
            let is_alone = suspicion == Suspicion::Alone;
            state.sometimes[Sometimes::Alone as usize] += u64::from(is_alone);
            return Vec::new();
        }
        state.company.extend(beside.keys().cloned());
        state.company.insert(claim);
        let most = match suspicion {
            Suspicion::None => usize::MAX,
            Suspicion::Many => 64,
            Suspicion::Few => 8,
            Suspicion::Alone => 1,
        };
        let is_mixed = beside.values().any(|other| *other != suspicion);
        let is_wrong = is_mixed || beside.len() >= most;
        let what = || {
            let TaskKey { reaction, document } = &task.key;
            format!(
                "I14: {reaction}/{document} runs under suspicion {suspicion:?} beside {:?}",
                beside.values()
            )
        };
        is_wrong.then(what).into_iter().collect()
    }

    /// Records the end of a handler, with any result.
    pub(crate) fn is_through(&self, node: &str, task: &Task) {
        let mut state = self.state();
        if let Some(handlers) = state.handlers.get_mut(node) {
            handlers.remove(&(task.key.clone(), task.epoch));
        }
    }

    /// Records a heartbeat of a worker.
    pub(crate) fn beat(&self, worker: &str, length: Duration) {
        let (now, mut state) = (Instant::now(), self.state());
        let alive = state.alive.entry(claims::name_of(worker).to_owned()).or_insert((now, now));
        *alive = (if alive.1 < now { now } else { alive.0 }, now + length);
    }

    /// Records that a handler succeeded.
    pub(crate) fn succeeded(&self, task: &Task) {
        let mut state = self.state();
        state.tasks.entry(task.key.clone()).or_default().succeeded.insert(task.epoch);
    }

    /// Records that a handler was canceled before it finished. Returns the violations.
    pub(crate) fn cancelled(&self, node: &str, task: &Task) -> Vec<String> {
        self.happened(Sometimes::Cancelled);
        let state = self.state();
        let is_over = state.nodes.get(node).is_none_or(Node::is_gone);
        let last = state.tasks.get(&task.key).and_then(|known| known.last.as_ref());
        let stands = last
            .is_some_and(|last| last.epoch == task.epoch && matches!(last.state, Is::Running | Is::Changed));
        if stands && !is_over {
            let TaskKey { reaction, document } = &task.key;
            let epoch = task.epoch;
            return vec![format!(
                "I12: {node}: claim {epoch} of {reaction}/{document} stands, and its run was cancelled"
            )];
        }
        Vec::new()
    }

    /// Records an effect in a transaction. Returns the violations.
    pub(crate) fn effect(&self, effect: Effect) -> Vec<String> {
        let mut state = self.state();
        let mut wrong = Vec::new();
        let Effect { key, idempotency_key: id, watched, revision } = &effect;
        let known = state.tasks.get(key).cloned().unwrap_or_default();
        if revision.is_none() && !state.was(&key.document, watched) {
            wrong.push(format!("I4: {id} was booked for {watched}, which {} never was", key.document));
        }
        let others = state.effects.entry(id.clone()).or_default();
        if !others.is_empty() && known.retried.is_empty() {
            wrong.push(format!("I4: {id} was booked twice"));
        }
        others.push(effect);
        wrong
    }

    /// Records a change of a task. Returns the violations.
    pub(crate) fn saw(
        &self,
        key: &TaskKey,
        before: Option<&Task>,
        after: Option<Task>,
        by: &str,
        how: Wrote,
    ) -> Vec<String> {
        let mut state = self.state();
        let mut wrong = Vec::new();
        let what = format!("{}/{}", key.reaction, key.document);
        match (before, &after) {
            (_, None) => state.sometimes[Sometimes::Forgotten as usize] += 1,
            (None, Some(after)) => {
                let code = state.nodes.get(by).map_or(0, |node| node.code);
                let known = state.tasks.entry(key.clone()).or_default();
                if after.generation > 0 && known.done.contains(&after.generation) {
                    wrong.push(format!(
                        "I5: {what} was forgotten, and its generation {} is used again",
                        after.generation
                    ));
                }
                // In any other state, a planner that does not know the reaction only left a note to
                // check the task.
                if after.state == Is::Pending {
                    known.needs.insert(after.generation, code);
                }
            }
            (Some(before), Some(after)) => state.changed(&mut wrong, before, after, by, how),
        }
        state.tasks.entry(key.clone()).or_default().last = after;
        wrong
    }
}
