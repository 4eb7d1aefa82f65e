//! The invariants of documents without events, checked at every change and every response. The code
//! shares nothing with the code under test.
//!
//! - I10: Without faults nothing fails.
//! - I11: The responses that writers got are true. A written or applied change is there. A change
//!   reported as already present was present. A rejected change had a reason and is not there.
//! - I14: Content replaces only the content it was computed from. A call writes again only after an
//!   unknown outcome, and only if others wrote in between.
//! - I15: An operation is applied to a document once and has its defined effect. It is not applied
//!   if it can no longer be told whether it was applied before.

mod answers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leftfold::content::{Operation, REMEMBERED, Stored};
use leftfold::react::ExternalCollection;
use leftfold::{DocumentId, Json, Kind};
use serde_json::Value;

use super::naive;

/// Things that happen in some runs.
pub(crate) const SOMETIMES: [&str; 10] = [
    "writes of content that conflict",
    "contents that were there already",
    "contents deleted",
    "changes made anew",
    "changes made twice, as nobody could tell",
    "operations that were applied already",
    "operations that are too old",
    "operations on nothing",
    "operations that are impossible",
    "writers that died",
];

#[derive(Clone, Copy)]
pub(crate) enum Sometimes {
    Conflict,
    Already,
    Deleted,
    Anew,
    Twice,
    Repeated,
    TooOld,
    Missing,
    Impossible,
    Died,
}

/// The number of a writer's call.
pub(crate) type CallId = usize;

/// A change that a call is to make to a document.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    /// Replace the content `from` with the content `to`.
    Write { id: DocumentId, from: Option<Value>, to: Option<Value> },
    /// Apply an operation.
    Operate { id: DocumentId, operation: Operation },
}

/// Checks the documents of a run.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of changes of all documents.
    changes: u64,
    documents: BTreeMap<DocumentId, History>,
    calls: Vec<Call>,
    /// The current call of each writer.
    current: BTreeMap<Arc<str>, CallId>,
    /// The last known content of each document.
    looked: BTreeMap<(ExternalCollection, DocumentId), Stored>,
    sometimes: [u64; SOMETIMES.len()],
}

/// All states of a document. It does not exist at first.
#[derive(Debug, Default)]
struct History {
    states: Vec<Was>,
    /// The applied operations, for each time the document was inserted.
    lives: Vec<BTreeSet<u64>>,
}

/// The state of a document after a change.
#[derive(Debug)]
struct Was {
    since: u64,
    body: Option<Value>,
    by: CallId,
}

/// A call and its results.
#[derive(Debug)]
struct Call {
    /// The number of changes of all documents before the call.
    began: u64,
    /// `true` if there are no faults.
    is_calm: bool,
    wanted: Vec<Wanted>,
    /// The mark that it adds to the end of a list.
    mark: Option<String>,
    /// The number of unknown outcomes.
    doubts: u64,
    /// `true` if a read returned stale data to its writer.
    is_misled: bool,
    /// The documents it wrote, and those it applied operations to.
    effects: Vec<(DocumentId, Option<u64>)>,
    /// The operations that its writer was told are applied.
    known: Vec<(DocumentId, u64)>,
    /// The error that it failed with, if any.
    failed: Option<Kind>,
}

impl History {
    fn body(&self) -> Option<&Value> {
        self.states.last()?.body.as_ref()
    }

    /// Returns the state after `changes` changes and all later states.
    fn since(&self, changes: u64) -> impl Iterator<Item = Option<&Value>> {
        let after = self.states.partition_point(|was| was.since <= changes);
        let then = after.checked_sub(1).and_then(|at| self.states.get(at)).and_then(|was| was.body.as_ref());
        let later = self.states.iter().skip(after).map(|was| was.body.as_ref());
        std::iter::once(then).chain(later)
    }

    /// Returns the applied operations of each life that did not end within the first `changes`
    /// changes.
    fn lives_since(&self, changes: u64) -> impl Iterator<Item = &BTreeSet<u64>> {
        let before = self.states.iter().take_while(|was| was.since <= changes);
        self.lives.iter().skip(before.filter(|was| was.body.is_none()).count())
    }
}

impl Call {
    /// Returns whether the call has written this document.
    fn wrote(&self, id: &DocumentId) -> bool {
        self.effects.iter().any(|(one, operation)| one == id && operation.is_none())
    }

    /// Returns whether the call has applied this operation.
    fn applied(&self, id: &DocumentId, number: u64) -> bool {
        self.effects.iter().any(|(one, operation)| one == id && *operation == Some(number))
    }
}

/// Returns the number of applied operations above `number`.
fn higher(applied: &BTreeSet<u64>, number: u64) -> usize {
    applied.range(number + 1..).count()
}

/// Formats a document for a message.
fn shown(body: Option<&Value>) -> String {
    body.map_or_else(|| "not there".to_owned(), Value::to_string)
}

impl Ledger {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn happened(&self, what: Sometimes) {
        self.state().sometimes[what as usize] += 1;
    }

    pub(crate) fn sometimes(&self) -> [u64; SOMETIMES.len()] {
        self.state().sometimes
    }

    /// Records the start of a call. [`wants`](Self::wants) may add changes to it later.
    pub(crate) fn begin(
        &self,
        by: &Arc<str>,
        is_calm: bool,
        wanted: Vec<Wanted>,
        mark: Option<String>,
    ) -> CallId {
        let mut state = self.state();
        let (call, began) = (state.calls.len(), state.changes);
        state.calls.push(Call {
            began,
            is_calm,
            wanted,
            mark,
            doubts: 0,
            is_misled: false,
            effects: Vec::new(),
            known: Vec::new(),
            failed: None,
        });
        state.current.insert(Arc::clone(by), call);
        call
    }

    /// Adds a change to a call.
    pub(crate) fn wants(&self, call: CallId, wanted: Wanted) {
        let mut state = self.state();
        let wants = &mut state.calls[call].wanted;
        wants.push(wanted);
        if wants.len() > 1 {
            state.sometimes[Sometimes::Anew as usize] += 1;
        }
    }

    /// Returns the current call of a writer.
    pub(crate) fn current(&self, by: &str) -> Option<CallId> {
        self.state().current.get(by).copied()
    }

    /// Records an unknown outcome of a call.
    pub(crate) fn doubt(&self, call: Option<CallId>) {
        if let Some(call) = call {
            self.state().calls[call].doubts += 1;
        }
    }

    /// Records that a read returned stale data to a writer.
    pub(crate) fn misled(&self, by: &str) {
        let mut state = self.state();
        if let Some(call) = state.current.get(by).copied() {
            state.calls[call].is_misled = true;
        }
    }

    /// Records a read of a document, and returns the content of the read before.
    pub(crate) fn looked(
        &self,
        on: &ExternalCollection,
        id: &DocumentId,
        now: Option<Stored>,
    ) -> Option<Stored> {
        let (mut state, key) = (self.state(), (on.clone(), id.clone()));
        match now {
            Some(now) => state.looked.insert(key, now),
            None => state.looked.remove(&key),
        }
    }

    /// Records that a call has written a document or applied an operation to it. Returns the
    /// violations.
    pub(crate) fn saw(
        &self,
        call: CallId,
        id: &DocumentId,
        operation: Option<&Operation>,
        after: Option<&Json>,
    ) -> Vec<String> {
        let mut state = self.state();
        let State { changes, documents, calls, sometimes, .. } = &mut *state;
        let (history, of) = (documents.entry(id.clone()).or_default(), &mut calls[call]);
        let after = after.and_then(naive::parsed);
        let wrong = match operation {
            Some(operation) => history.operated(call, id, operation, after.as_ref()),
            None => history.written(call, of, id, after.as_ref()),
        };
        let number = operation.map(|operation| operation.id().get());
        sometimes[Sometimes::Twice as usize] += u64::from(number.is_none() && of.wrote(id));
        sometimes[Sometimes::Deleted as usize] += u64::from(after.is_none());
        if history.body().is_none() {
            history.lives.push(BTreeSet::new());
        }
        if let Some(applied) = history.lives.last_mut() {
            applied.extend(number);
        }
        *changes += 1;
        history.states.push(Was { since: *changes, body: after, by: call });
        of.effects.push((id.clone(), number));
        wrong
    }
}

impl History {
    /// Returns the violations of a write.
    fn written(&self, call: CallId, of: &Call, id: &DocumentId, after: Option<&Value>) -> Vec<String> {
        let (before, mut wrong) = (self.body(), Vec::new());
        let is_wanted = |wanted: &Wanted| match wanted {
            Wanted::Write { id: one, from, to } => {
                one == id && from.as_ref() == before && to.as_ref() == after
            }
            Wanted::Operate { .. } => false,
        };
        if !of.wanted.iter().any(is_wanted) {
            let (before, after) = (shown(before), shown(after));
            wrong.push(format!("I14: call {call} made {id} {after}, and was not to make that of {before}"));
        }
        let times = of.effects.iter().filter(|(one, _)| one == id).count() as u64;
        if times > of.doubts {
            wrong.push(format!("I14: call {call} wrote {id} {} times, with {} doubts", times + 1, of.doubts));
        }
        if self.states.last().is_some_and(|was| was.by == call) {
            wrong.push(format!("I14: call {call} wrote {id} twice, and nobody else did in between"));
        }
        wrong
    }

    /// Returns the violations of an applied operation.
    fn operated(
        &self,
        call: CallId,
        id: &DocumentId,
        operation: &Operation,
        after: Option<&Value>,
    ) -> Vec<String> {
        let (number, mut wrong) = (operation.id().get(), Vec::new());
        let what = format!("call {call} applied operation {number} to {id}");
        let Some((before, applied)) = self.body().zip(self.lives.last()) else {
            return vec![format!("I15: {what}, which is not there")];
        };
        if applied.contains(&number) {
            wrong.push(format!("I15: {what} for the second time"));
        } else if higher(applied, number) >= REMEMBERED {
            wrong.push(format!("I15: {what}, of which nobody can tell whether it was applied before"));
        }
        if naive::operated(before, operation).as_ref() != after {
            wrong.push(format!("I15: {what}, which was {before}, and made it {}", shown(after)));
        }
        wrong
    }
}
