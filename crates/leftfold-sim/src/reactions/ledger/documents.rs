//! The states of the documents, and the handlers' reads of them.

use leftfold::DocumentId;
use serde_json::Value;

use super::state::{Ledger, State};

impl Ledger {
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

    /// Checks a handler's read. `begin` is the number of writes at its start.
    pub(crate) fn read(&self, id: &DocumentId, begin: u64, found: &Value, planned: &Value) -> Vec<String> {
        let state = self.state();
        let states = state.documents.get(id).map(Vec::as_slice).unwrap_or_default();
        let was = states.iter().enumerate().any(|(at, (from, document))| {
            let until = states.get(at + 1).map_or(u64::MAX, |(next, _)| *next);
            *from <= state.writes && until > begin && document.as_ref() == Some(found)
        });
        let mut wrong = Vec::new();
        if !was {
            wrong
                .push(format!("I5: a handler read {id} as {found}, which it was at no time during the read"));
        }
        if found.get("value") != Some(planned) {
            wrong.push(format!("I5: a handler planned for {planned} read {id} as {found}"));
        }
        wrong
    }
}

impl State {
    /// Returns whether a document ever had this value.
    pub(super) fn was(&self, id: &DocumentId, watched: &str) -> bool {
        let states = self.documents.get(id).into_iter().flatten();
        states
            .filter_map(|(_, document)| document.as_ref()?.get("value"))
            .any(|value| format!("{value}") == watched)
    }
}
