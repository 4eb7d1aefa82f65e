//! The history of a task: its last runs.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::record::Task;
use super::rules::Rules;

/// The maximum number of runs in a history.
pub(crate) const MAX_HISTORY: usize = 1_000;

/// The maximum number of bytes of error texts in a history.
const MAX_HISTORY_BYTES: usize = 256 << 10;

/// A run in the history of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The time at which it ended.
    pub at: Timestamp,
    /// Its duration in milliseconds.
    pub millis: u64,
    /// The way it ended.
    pub outcome: Ended,
    /// The error, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The way in which a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// The handler succeeded.
    Done,
    /// The document was not, or no longer, what the task was planned for.
    Stale,
    /// The handler failed.
    Failed,
    /// The handler deferred the task.
    Deferred,
    /// The run never reported back: its process died or took too long.
    Lost,
}

impl Task {
    pub(super) fn record_run(
        &mut self,
        outcome: Ended,
        error: Option<String>,
        rules: &Rules,
        now: Timestamp,
    ) {
        let begun = self.claimed_at.unwrap_or(now);
        let millis = u64::try_from(now.duration_since(begun).as_millis()).unwrap_or(0);
        self.history.push(Run { at: now, millis, outcome, error });
        let surplus = self.history.len().saturating_sub(rules.history);
        self.history.drain(..surplus);
        let mut bytes = 0;
        let fitting = self.history.iter().rev().take_while(|run| {
            bytes += run.error.as_ref().map_or(0, String::len);
            bytes <= MAX_HISTORY_BYTES
        });
        let surplus = self.history.len() - fitting.count();
        self.history.drain(..surplus);
    }
}
