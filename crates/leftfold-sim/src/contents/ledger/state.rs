//! The ledger's knowledge of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leftfold::content::{Operation, Stored};
use leftfold::react::ExternalCollection;
use leftfold::{DocumentId, Json};

use super::calls::{Call, CallId};
use super::history::{History, Was};
use super::sometimes::{SOMETIMES, Sometimes};
use crate::contents::naive;

/// Checks the documents of a run.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// The number of changes of all documents.
    pub(super) changes: u64,
    pub(super) documents: BTreeMap<DocumentId, History>,
    pub(super) calls: Vec<Call>,
    /// The current call of each writer.
    pub(super) current: BTreeMap<Arc<str>, CallId>,
    /// The last known content of each document.
    pub(super) looked: BTreeMap<(ExternalCollection, DocumentId), Stored>,
    pub(super) sometimes: [u64; SOMETIMES.len()],
}

impl Ledger {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn happened(&self, event: Sometimes) {
        self.state().sometimes[event as usize] += 1;
    }

    pub(crate) fn sometimes(&self) -> [u64; SOMETIMES.len()] {
        self.state().sometimes
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
