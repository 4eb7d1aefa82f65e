//! The record of a task, as stores keep it, and the transitions that all changes share.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::history::Run;
use super::rules::Rules;
use super::suspicion::Suspicion;
use crate::event::DocumentId;
use crate::json::Json;
use crate::mutant;

/// The work of a reaction for a document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// The identity of the task.
    #[serde(flatten)]
    pub key: TaskKey,
    /// A number that differs after each change. Conditional writes compare it.
    pub version: u64,
    /// The state of the task.
    pub state: State,
    /// `true` if the document matched when it was last observed.
    pub inside: bool,
    /// The number of the current claim. It grows with each claim and each lost claim, so that older
    /// claims are void. It starts at the time, so that it grows even if the task is deleted and
    /// created again.
    pub epoch: u64,
    /// The number of the document state to handle. It grows with each new state and names the
    /// effect, independent of the number of attempts. It starts at the time, too.
    pub generation: u64,
    /// The watched values of that state.
    pub watched: Json,
    /// For a pending task, the earliest time to run it. For a claimed task, the end of the claim.
    pub due: Option<Timestamp>,
    /// The time since which there is something to handle.
    pub since: Timestamp,
    /// The time at which the document must be observed again, even if nothing has changed.
    pub check_at: Option<Timestamp>,
    /// The lowest version of the reaction's code that may run it.
    pub needs: u32,
    /// The number of claims for the current state of the document.
    pub attempts: u32,
    /// The time of the first failure.
    pub first_failed: Option<Timestamp>,
    /// The last error.
    pub error: Option<String>,
    /// The worker that has claimed it.
    pub owner: Option<String>,
    /// The time of the claim.
    pub claimed_at: Option<Timestamp>,
    /// The time at which it last succeeded.
    pub done_at: Option<Timestamp>,
    /// The time at which its state last changed.
    pub changed_at: Timestamp,
    /// The last runs, the latest at the end.
    pub history: Vec<Run>,
    /// The progress of a reaction to events in its stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<StreamProgress>,
    /// The suspicion that the task kills the processes that run it.
    #[serde(default, skip_serializing_if = "Suspicion::is_none")]
    pub suspicion: Suspicion,
    /// The number of lost claims that were excused since a run last ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub excused: u8,
}

/// The identity of a task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskKey {
    /// The reaction's name.
    pub reaction: String,
    /// The document's id.
    pub document: DocumentId,
}

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The task runs when it is due.
    Pending,
    /// A worker runs the task, until its claim ends.
    Running,
    /// A worker runs the task, and the document changed meanwhile.
    Changed,
    /// The last state of the document was handled.
    Done,
    /// There is nothing to handle: the document was deleted, does not match, or is not what the
    /// task was planned for.
    Stale,
    /// The task failed too often. It waits for an operator, or for the document to change.
    Failed,
}

/// The progress of a reaction to events in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamProgress {
    /// The revision up to which all wanted events are handled.
    pub handled: u64,
    /// The revision of the last wanted event known so far.
    pub last: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u8) -> bool {
    *number == 0
}

impl Task {
    /// Returns a text that is the same for all attempts to handle one state of the document, and
    /// different for the next state.
    pub fn idempotency_key(&self) -> String {
        let TaskKey { reaction, document } = &self.key;
        let generation = self.generation;
        mutant!(KeyPerAttempt => return format!("{reaction}/{document}/{generation}/{}", self.epoch));
        format!("{reaction}/{document}/{generation}")
    }

    pub(super) fn new(key: &TaskKey, rules: &Rules, now: Timestamp) -> Self {
        Self { needs: rules.version, ..Self::unplanned(key, now) }
    }

    pub(super) fn unplanned(key: &TaskKey, now: Timestamp) -> Self {
        let before = number_before(now);
        Self {
            key: key.clone(),
            version: 0,
            state: State::Stale,
            inside: false,
            epoch: before,
            generation: before,
            watched: Json::stored("null"),
            due: None,
            since: now,
            check_at: None,
            needs: 1,
            attempts: 0,
            first_failed: None,
            error: None,
            owner: None,
            claimed_at: None,
            done_at: None,
            changed_at: now,
            history: Vec::new(),
            cursor: None,
            suspicion: Suspicion::None,
            excused: 0,
        }
    }

    pub(super) fn move_to(&mut self, state: State, now: Timestamp) {
        self.state = state;
        self.changed_at = now;
    }

    pub(super) fn give_up(&mut self, now: Timestamp) {
        self.move_to(State::Failed, now);
        self.due = None;
        self.owner = None;
    }

    pub(super) fn reset_attempts(&mut self) {
        // The current run, if any, is already counted.
        self.attempts = 0;
        self.first_failed = None;
    }
}

/// Returns the number before the first one of a new task. It is the time, so that numbers grow even
/// if the task is deleted and created again.
fn number_before(now: Timestamp) -> u64 {
    mutant!(NumbersAgain => return 0);
    u64::try_from(now.as_millisecond()).unwrap_or(0)
}
