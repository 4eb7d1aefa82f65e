//! The calls of writers.

use std::sync::Arc;

use leftfold::content::Operation;
use leftfold::{DocumentId, Kind};
use serde_json::Value;

use super::sometimes::Sometimes;
use super::state::Ledger;

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

/// A call and its results.
#[derive(Debug)]
pub(super) struct Call {
    /// The number of changes of all documents before the call.
    pub(super) began: u64,
    /// `true` if there are no faults.
    pub(super) is_calm: bool,
    pub(super) wanted: Vec<Wanted>,
    /// The mark that it adds to the end of a list.
    pub(super) mark: Option<String>,
    /// The number of unknown outcomes.
    pub(super) doubts: u64,
    /// `true` if a read returned stale data to its writer.
    pub(super) is_misled: bool,
    /// The documents it wrote, and those it applied operations to.
    pub(super) effects: Vec<(DocumentId, Option<u64>)>,
    /// The operations that responses reported as applied.
    pub(super) known: Vec<(DocumentId, u64)>,
    /// The error that it failed with, if any.
    pub(super) failed: Option<Kind>,
}

impl Call {
    /// Returns whether the call has written this document.
    pub(super) fn wrote(&self, id: &DocumentId) -> bool {
        self.effects.iter().any(|(one, operation)| one == id && operation.is_none())
    }

    /// Returns whether the call has applied this operation.
    pub(super) fn applied(&self, id: &DocumentId, number: u64) -> bool {
        self.effects.iter().any(|(one, operation)| one == id && *operation == Some(number))
    }
}

impl Ledger {
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
}
