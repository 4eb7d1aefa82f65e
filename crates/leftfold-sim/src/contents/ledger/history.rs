//! The history of a document, and the checks of its changes.

use std::collections::BTreeSet;

use leftfold::DocumentId;
use leftfold::content::{Operation, REMEMBERED};
use serde_json::Value;

use super::calls::{Call, CallId, Wanted};
use crate::contents::naive;

/// All states of a document. It does not exist at first.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) states: Vec<Was>,
    /// The applied operations, for each time the document was inserted.
    pub(super) lives: Vec<BTreeSet<u64>>,
}

/// The state of a document after a change.
#[derive(Debug)]
pub(super) struct Was {
    pub(super) since: u64,
    pub(super) body: Option<Value>,
    pub(super) by: CallId,
}

impl History {
    pub(super) fn body(&self) -> Option<&Value> {
        self.states.last()?.body.as_ref()
    }

    /// Returns the state after `changes` changes and all later states.
    pub(super) fn since(&self, changes: u64) -> impl Iterator<Item = Option<&Value>> {
        let after = self.states.partition_point(|was| was.since <= changes);
        let then = after.checked_sub(1).and_then(|at| self.states.get(at)).and_then(|was| was.body.as_ref());
        let later = self.states.iter().skip(after).map(|was| was.body.as_ref());
        std::iter::once(then).chain(later)
    }

    /// Returns the applied operations of each life that did not end within the first `changes`
    /// changes.
    pub(super) fn lives_since(&self, changes: u64) -> impl Iterator<Item = &BTreeSet<u64>> {
        let before = self.states.iter().take_while(|was| was.since <= changes);
        self.lives.iter().skip(before.filter(|was| was.body.is_none()).count())
    }
}

impl History {
    /// Returns the violations of a write.
    pub(super) fn written(
        &self,
        call: CallId,
        of: &Call,
        id: &DocumentId,
        after: Option<&Value>,
    ) -> Vec<String> {
        let (before, mut wrong) = (self.body(), Vec::new());
        let is_wanted = |wanted: &Wanted| match wanted {
            Wanted::Write { id: one, from, to } => {
                one == id && from.as_ref() == before && to.as_ref() == after
            }
            Wanted::Operate { .. } => false,
        };
        if !of.wanted.iter().any(is_wanted) {
            let (before, after) = (shown(before), shown(after));
            wrong.push(format!(
                "I14: call {call} wrote {id} as {after}, which it should not compute from {before}"
            ));
        }
        let times = of.effects.iter().filter(|(one, _)| one == id).count() as u64;
        if times > of.doubts {
            wrong.push(format!(
                "I14: call {call} wrote {id} {} times, with {} unknown outcomes",
                times + 1,
                of.doubts
            ));
        }
        if self.states.last().is_some_and(|was| was.by == call) {
            wrong.push(format!("I14: call {call} wrote {id} twice, without another write in between"));
        }
        wrong
    }

    /// Returns the violations of an applied operation.
    pub(super) fn operated(
        &self,
        call: CallId,
        id: &DocumentId,
        operation: &Operation,
        after: Option<&Value>,
    ) -> Vec<String> {
        let (number, mut wrong) = (operation.id().get(), Vec::new());
        let label = format!("call {call} applied operation {number} to {id}");
        let Some((before, applied)) = self.body().zip(self.lives.last()) else {
            return vec![format!("I15: {label}, which does not exist")];
        };
        if applied.contains(&number) {
            wrong.push(format!("I15: {label} for the second time"));
        } else if higher(applied, number) >= REMEMBERED {
            wrong.push(format!("I15: {label}, although it is too old to be known as new"));
        }
        if naive::operated(before, operation).as_ref() != after {
            wrong.push(format!("I15: {label}, and changed {before} to {}", shown(after)));
        }
        wrong
    }
}

/// Returns the number of applied operations above `number`.
pub(super) fn higher(applied: &BTreeSet<u64>, number: u64) -> usize {
    applied.range(number + 1..).count()
}

/// Formats a document for a message.
pub(super) fn shown(body: Option<&Value>) -> String {
    body.map_or_else(|| "missing".to_owned(), Value::to_string)
}
