//! What must hold of reactions, seen at every change of a task and at every effect, by code that shares nothing with the engine.
//!
//! | id | what holds |
//! | --- | --- |
//! | I4 | an effect that is kept in a transaction with the end of its task is kept once for each cause, and none without a cause; no such task is done without |
//! | I5 | an effect elsewhere names its cause by its key: the same for all attempts, another one for the next state; what was handled was true then; nothing that is done is done again |
//! | I10 | in the end, the last state of every document that is wanted was handled, and nothing waits |
//! | I12 | only the worker that has a claim ends it; a claim that is lost ends the run, and such losses are bounded; a worker that is alive and well does not lose a claim |
//! | I14 | a claim that was lost with its process counts as an attempt only if no other handler ran beside it; a worker that said that it is alive raises no suspicion |
//! | I13 | nothing is begun that is paused, held up, or needs newer code; the numbers of a lock grow, and are different ones |

mod claims;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leftfold::DocumentId;
use leftfold::react::{State as Is, Suspicion, Task, TaskKey};
use serde_json::Value;
use tokio::time::Instant;

use crate::fuse::Fuse;

/// How a task was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrote {
    /// By itself.
    Alone,
    /// In a transaction with an effect.
    InTransaction,
}

/// What is kept in a transaction.
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

/// What happens in some runs.
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

/// How long before it is lost a lock can have been kept for the last time, and a little more.
const LOCKED: Duration = Duration::from_secs(8);

/// Watches the reactions of a run.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// The most attempts there are, and how long a claim lasts.
    pub(super) attempts: u32,
    pub(super) visibility: Duration,
    /// How often any document was written.
    writes: u64,
    /// What each document was, from which write on.
    pub(super) documents: BTreeMap<DocumentId, Vec<(u64, Option<Value>)>>,
    pub(super) tasks: BTreeMap<TaskKey, Known>,
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) sent: BTreeMap<String, Vec<Sent>>,
    pub(super) effects: BTreeMap<String, Vec<Effect>>,
    /// When nodes were last told that they could claim something.
    offered: BTreeMap<(String, TaskKey), Instant>,
    holdups: BTreeMap<String, Holdup>,
    /// How long the log was when reactions began to follow it.
    pub(super) followed: BTreeMap<String, u64>,
    locked: BTreeMap<u64, String>,
    /// The numbers that are held now, and by which nodes.
    holding: BTreeMap<u64, String>,
    /// The handlers that run now, by node.
    handlers: BTreeMap<String, BTreeMap<Claim, Suspicion>>,
    /// Claims whose handlers had others beside them.
    company: BTreeSet<Claim>,
    /// The times from and until which each node has said, without a break, that it is alive.
    alive: BTreeMap<String, (Instant, Instant)>,
    sometimes: [u64; SOMETIMES.len()],
}

/// A task and the epoch of a claim.
type Claim = (TaskKey, u64);

/// What is known of a node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    code: u32,
    fuse: Arc<Fuse>,
    stands_still: bool,
    /// What it suffered, and when: one that fails now and then keeps its claims.
    troubles: Vec<(Instant, u32)>,
    is_over: bool,
}

impl Node {
    fn is_gone(&self) -> bool {
        self.is_over || self.stands_still || self.fuse.is_blown()
    }

    /// Whether it suffered so much in this time that it could not keep what it has.
    fn was_troubled(&self, within: Duration) -> bool {
        self.is_gone() || self.troubles_since(Instant::now().checked_sub(within)) >= 2
    }

    fn troubles_since(&self, from: Option<Instant>) -> u32 {
        let recent = self.troubles.iter().filter(|(at, _)| from.is_none_or(|from| *at >= from));
        recent.map(|(_, weight)| *weight).sum()
    }
}

/// What is known of a task, by generation.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) last: Option<Task>,
    /// The claim that stands, and the generation it is for.
    running: Option<(u64, u64)>,
    /// When it was claimed, or its claim renewed.
    renewed: Option<Instant>,
    claims: BTreeMap<u64, u32>,
    /// Claims that do not count.
    forgiven: BTreeMap<u64, u32>,
    pub(super) done: BTreeSet<u64>,
    retried: BTreeMap<u64, u32>,
    /// The code that planned it.
    needs: BTreeMap<u64, u32>,
    /// Claims whose handlers succeeded.
    succeeded: BTreeSet<u64>,
    /// Claims that were lost and did not count, since a run last ended.
    uncounted: u32,
}

/// An effect elsewhere.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) key: TaskKey,
    pub(super) watched: String,
    pub(super) epoch: u64,
    generation: u64,
    pub(super) revision: Option<u64>,
}

/// From when on a reaction is held up, as somebody was told.
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

    /// A node begins to work.
    pub(crate) fn node(&self, name: &str, code: u32, fuse: Arc<Fuse>) {
        let node = Node { code, fuse, stands_still: false, troubles: Vec::new(), is_over: false };
        self.state().nodes.insert(name.to_owned(), node);
    }

    /// Somebody began to follow the log for these reactions, when it was so long.
    pub(crate) fn follows(&self, reactions: &[&str], events: u64) {
        let mut state = self.state();
        for reaction in reactions {
            state.followed.entry((*reaction).to_owned()).or_insert(events);
        }
    }

    /// A node ends by itself, or is dead.
    pub(crate) fn node_ends(&self, name: &str) {
        if let Some(node) = self.state().nodes.get_mut(name) {
            node.is_over = true;
        }
    }

    /// A node stands still, or goes on.
    pub(crate) fn stands_still(&self, name: &str, still: bool) {
        if let Some(node) = self.state().nodes.get_mut(name) {
            node.stands_still = still;
        }
        self.gone(name, Duration::ZERO);
    }

    /// A node met a fault.
    pub(crate) fn trouble(&self, name: &str) {
        self.state().trouble(name, Duration::ZERO, 1);
    }

    /// A node is not heard for as long as this.
    pub(crate) fn gone(&self, name: &str, most: Duration) {
        self.state().trouble(name, most, 10);
    }

    /// A node has lost a lease, and is not told.
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

    /// A document was written or deleted.
    pub(crate) fn wrote(&self, id: &DocumentId, document: Option<Value>) {
        let mut state = self.state();
        state.writes += 1;
        let at = state.writes;
        state.documents.entry(id.clone()).or_default().push((at, document));
    }

    /// How often any document was written so far.
    pub(crate) fn writes(&self) -> u64 {
        self.state().writes
    }

    /// A handler read this, and asked for it when so many documents were written.
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

    /// These tasks were shown to a node as due.
    pub(crate) fn offered(&self, node: &str, tasks: &[Task]) {
        let mut state = self.state();
        for task in tasks {
            state.offered.insert((node.to_owned(), task.key.clone()), Instant::now());
        }
    }

    /// A handler was told that its reaction is held up until then.
    pub(crate) fn throttled(&self, reaction: &str, until: Instant) {
        self.happened(Sometimes::HeldUp);
        let mut state = self.state();
        let holdup = state.holdups.entry(reaction.to_owned()).or_default();
        if !holdup.resuming {
            let until = holdup.throttled.map_or(until, |(_, before)| before.max(until));
            holdup.throttled = Some((Instant::now(), until));
        }
    }

    /// An operator was told that a reaction is paused.
    pub(crate) fn paused(&self, reaction: &str) {
        self.happened(Sometimes::Paused);
        self.state().holdups.entry(reaction.to_owned()).or_default().paused = Some(Instant::now());
    }

    /// An operator is about to have a reaction go on, or has done so.
    pub(crate) fn resumes(&self, reaction: &str, begins: bool) {
        let mut state = self.state();
        *state.holdups.entry(reaction.to_owned()).or_default() =
            Holdup { resuming: begins, ..Holdup::default() };
    }

    /// A handler has a lock of this number.
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

    /// A handler has it no longer.
    pub(crate) fn unlocked(&self, number: u64) {
        self.state().holding.remove(&number);
    }

    /// The highest number that anybody was told.
    pub(crate) fn highest_lock(&self) -> u64 {
        self.state().locked.keys().next_back().copied().unwrap_or(0)
    }

    /// A handler has done something elsewhere.
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
        // The same event, or the same state, under another name.
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

    /// A handler begins.
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

    /// A handler has ended, however that was.
    pub(crate) fn is_through(&self, node: &str, task: &Task) {
        let mut state = self.state();
        if let Some(handlers) = state.handlers.get_mut(node) {
            handlers.remove(&(task.key.clone(), task.epoch));
        }
    }

    /// A worker has said that it is alive.
    pub(crate) fn beat(&self, worker: &str, length: Duration) {
        let (now, mut state) = (Instant::now(), self.state());
        let alive = state.alive.entry(claims::name_of(worker).to_owned()).or_insert((now, now));
        *alive = (if alive.1 < now { now } else { alive.0 }, now + length);
    }

    /// A handler says that it succeeded.
    pub(crate) fn succeeded(&self, task: &Task) {
        let mut state = self.state();
        state.tasks.entry(task.key.clone()).or_default().succeeded.insert(task.epoch);
    }

    /// A handler was ended before it was through.
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

    /// An effect was kept in a transaction.
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

    /// A task was changed.
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
                // One who does not know the reaction has only left word that somebody must look.
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
