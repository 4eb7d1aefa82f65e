//! Changes of tasks, requests for tasks, and their answers.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::event::DocumentId;
use crate::react::task::{State, Suspicion, Task, TaskKey};

/// A conditional write of a task, with the version from which it was computed.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskChange {
    /// Inserts the task; it must not exist.
    Insert(Task),
    /// Replaces the task; it must have this version.
    Update(u64, Task),
    /// Deletes the task; it must have this version.
    Delete(u64, TaskKey),
}

impl TaskChange {
    /// Creates the write of a task that had version `seen` when it was read, or that did not exist.
    pub(crate) fn write(seen: Option<u64>, task: Task) -> Self {
        match seen {
            Some(seen) => Self::Update(seen, task),
            None => Self::Insert(task),
        }
    }

    /// Returns the key of the task.
    pub fn key(&self) -> &TaskKey {
        match self {
            Self::Insert(task) | Self::Update(_, task) => &task.key,
            Self::Delete(_, key) => key,
        }
    }
}

/// A request for due tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedTasks {
    /// The reaction.
    pub reaction: String,
    /// The version of the reaction's code in this process. Tasks that need a later one are left
    /// out.
    pub version: u32,
    /// The maximum number of tasks.
    pub most: usize,
    /// The suspicion under which they wait.
    pub suspicion: Suspicion,
}

/// Tasks that can be claimed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DueTasks {
    /// The tasks of each reaction, the longest due first.
    pub tasks: Vec<Task>,
    /// The time at which the next wanted task becomes due, if none of its reaction is due now.
    /// `None` if there is no such task.
    pub next: Option<Timestamp>,
    /// The store's time.
    pub now: Timestamp,
    /// The latest code version of each wanted reaction that is registered.
    pub codes: BTreeMap<String, u32>,
    /// The time at which the first suspect of each level is due. Counts only reactions for which
    /// tasks without suspicion are wanted and which are neither paused nor throttled.
    pub suspects: BTreeMap<Suspicion, Timestamp>,
}

/// A selection of tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Selects tasks of this reaction.
    pub reaction: Option<String>,
    /// Selects tasks of this document.
    pub document: Option<DocumentId>,
    /// Selects tasks in one of these states; in any state if empty.
    pub states: Vec<State>,
    /// Selects tasks whose last error contains this text, ignoring case.
    pub error: Option<String>,
    /// Selects tasks whose state has not changed since this time.
    pub changed_before: Option<Timestamp>,
}

impl Query {
    /// Returns whether the query selects the task.
    pub fn is(&self, task: &Task) -> bool {
        let error = |wanted: &String| {
            task.error.as_ref().is_some_and(|error| error.to_lowercase().contains(&wanted.to_lowercase()))
        };
        self.reaction.as_ref().is_none_or(|reaction| task.key.reaction == *reaction)
            && self.document.as_ref().is_none_or(|document| task.key.document == *document)
            && (self.states.is_empty() || self.states.contains(&task.state))
            && self.error.as_ref().is_none_or(error)
            && self.changed_before.is_none_or(|before| task.changed_at < before)
    }
}

/// The number of tasks of a reaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Depth {
    /// The number of tasks by state.
    pub states: BTreeMap<State, u64>,
    /// The due time of the task that has been due for longest.
    pub oldest_due: Option<Timestamp>,
}

impl Depth {
    /// Counts a task.
    pub fn count(&mut self, task: &Task, now: Timestamp) {
        *self.states.entry(task.state).or_default() += 1;
        if task.state == State::Pending {
            let due = task.due.filter(|due| *due <= now);
            self.oldest_due = [self.oldest_due, due].into_iter().flatten().min();
        }
    }
}
