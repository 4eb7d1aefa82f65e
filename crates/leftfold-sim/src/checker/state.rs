//! The checker's knowledge of the log and the documents, and the violations.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use leftfold::{Bookmark, Collection, DocumentId, EventId, Json, Mark, Partition, Position};

/// Checks a run.
#[derive(Debug, Default)]
pub struct Checker {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) violations: Vec<String>,
    pub(super) read_up_to: Mark,
    pub(super) ids: HashMap<EventId, Json>,
    pub(super) bookmarks: HashSet<Bookmark>,
    /// The events of each document in log order, by projection.
    pub(super) routed: HashMap<(&'static str, DocumentId), Vec<Step>>,
    /// The log of each partition so far, with the documents that each event belongs to.
    pub(super) passed: HashMap<(&'static str, Partition), Vec<Passed>>,
    pub(super) documents: HashMap<(Collection, DocumentId), (Mark, Vec<String>)>,
    pub(super) checkpoints: HashMap<Collection, Mark>,
}

/// An event from a document's point of view.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) stream: String,
    pub(super) name: String,
    pub(super) partition: Partition,
    pub(super) position: Position,
    pub(super) clears: bool,
}

/// An event and the documents it belongs to.
pub(super) type Passed = (Step, Vec<DocumentId>);

impl Checker {
    /// Records a violation.
    pub fn violated(&self, violation: String) {
        self.state().violations.push(violation);
    }

    /// Returns the violations so far.
    pub fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
