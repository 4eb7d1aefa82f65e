//! What must hold of documents without events, seen at every change of one and at every answer, by code that shares nothing with what is tested.
//!
//! | id | what holds |
//! | --- | --- |
//! | I10 | where nothing goes wrong, nothing fails |
//! | I11 | what a writer was told is true: what was written or applied is, what was there already was, what was refused had a reason and is not done |
//! | I14 | content is written over the content that it was made from alone; a call writes again only where it can't be told, and others wrote in between |
//! | I15 | an operation is applied once to a document, does what it says, and is not applied where it can't be told any more |

mod answers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leftfold::content::{Operation, REMEMBERED, Stored};
use leftfold::react::Plain;
use leftfold::{DocumentId, Json, Kind};
use serde_json::Value;

use super::naive;

/// What happens in some runs.
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

/// Tells a call of a writer from others.
pub(crate) type CallId = usize;

/// What a call is to do to a document.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    /// To make it this content, from that.
    Write { id: DocumentId, from: Option<Value>, to: Option<Value> },
    /// To apply an operation.
    Operate { id: DocumentId, operation: Operation },
}

/// Watches the documents of a run.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How often any document was changed.
    changes: u64,
    documents: BTreeMap<DocumentId, History>,
    calls: Vec<Call>,
    /// What each writer is about.
    current: BTreeMap<Arc<str>, CallId>,
    /// What was there when somebody last looked.
    looked: BTreeMap<(Plain, DocumentId), Stored>,
    sometimes: [u64; SOMETIMES.len()],
}

/// All that a document was. At first it is not there.
#[derive(Debug, Default)]
struct History {
    states: Vec<Was>,
    /// The operations that were applied to it, for each time that it was inserted.
    lives: Vec<BTreeSet<u64>>,
}

/// What a document was from some change on.
#[derive(Debug)]
struct Was {
    since: u64,
    body: Option<Value>,
    by: CallId,
}

/// What is known of a call.
#[derive(Debug)]
struct Call {
    /// How often any document was changed before.
    began: u64,
    /// Whether nothing goes wrong.
    is_calm: bool,
    wanted: Vec<Wanted>,
    /// What it puts at the end of a list.
    mark: Option<String>,
    /// How often it could not be told what became of it.
    doubts: u64,
    /// Whether it was shown what is no longer true.
    is_misled: bool,
    /// The documents that it wrote, and those that it applied operations to.
    effects: Vec<(DocumentId, Option<u64>)>,
    /// The operations that its writer was told are applied.
    known: Vec<(DocumentId, u64)>,
    /// What it failed with, if it did.
    failed: Option<Kind>,
}

impl History {
    fn body(&self) -> Option<&Value> {
        self.states.last()?.body.as_ref()
    }

    /// All that it was when there were so many changes, and after.
    fn since(&self, changes: u64) -> impl Iterator<Item = Option<&Value>> {
        let after = self.states.partition_point(|was| was.since <= changes);
        let then = after.checked_sub(1).and_then(|at| self.states.get(at)).and_then(|was| was.body.as_ref());
        let later = self.states.iter().skip(after).map(|was| was.body.as_ref());
        std::iter::once(then).chain(later)
    }

    /// The operations of those of its lives that did not end before so many changes.
    fn lives_since(&self, changes: u64) -> impl Iterator<Item = &BTreeSet<u64>> {
        let before = self.states.iter().take_while(|was| was.since <= changes);
        self.lives.iter().skip(before.filter(|was| was.body.is_none()).count())
    }
}

impl Call {
    /// Whether it has written this document.
    fn wrote(&self, id: &DocumentId) -> bool {
        self.effects.iter().any(|(one, operation)| one == id && operation.is_none())
    }

    /// Whether it has applied this operation.
    fn applied(&self, id: &DocumentId, number: u64) -> bool {
        self.effects.iter().any(|(one, operation)| one == id && *operation == Some(number))
    }
}

/// How many of these are higher.
fn higher(applied: &BTreeSet<u64>, number: u64) -> usize {
    applied.range(number + 1..).count()
}

/// A document in a message.
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

    /// A writer begins a call; what it is to do may be added later.
    pub(super) fn begin(
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

    /// A call is to do this, too.
    pub(super) fn wants(&self, call: CallId, wanted: Wanted) {
        let mut state = self.state();
        let wants = &mut state.calls[call].wanted;
        wants.push(wanted);
        if wants.len() > 1 {
            state.sometimes[Sometimes::Anew as usize] += 1;
        }
    }

    /// What a writer is about.
    pub(super) fn current(&self, by: &str) -> Option<CallId> {
        self.state().current.get(by).copied()
    }

    /// It can't be told what became of a call.
    pub(super) fn doubt(&self, call: Option<CallId>) {
        if let Some(call) = call {
            self.state().calls[call].doubts += 1;
        }
    }

    /// A writer is shown what is no longer true.
    pub(super) fn misled(&self, by: &str) {
        let mut state = self.state();
        if let Some(call) = state.current.get(by).copied() {
            state.calls[call].is_misled = true;
        }
    }

    /// Somebody looks at a document. What was there when somebody last did.
    pub(super) fn looked(&self, on: &Plain, id: &DocumentId, now: Option<Stored>) -> Option<Stored> {
        let (mut state, key) = (self.state(), (on.clone(), id.clone()));
        match now {
            Some(now) => state.looked.insert(key, now),
            None => state.looked.remove(&key),
        }
    }

    /// A call has changed a document: written it, or applied an operation.
    pub(super) fn saw(
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
    /// What is wrong with a write of content.
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

    /// What is wrong with the application of an operation.
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
