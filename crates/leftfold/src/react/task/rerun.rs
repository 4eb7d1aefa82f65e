//! Repetitions: ended tasks run again on request, or for new code.

use serde::{Deserialize, Serialize};

use super::record::{State, Task};
use super::rules::{Rules, TaskMoment};
use crate::mutant;

/// The effect of a new version of a reaction's code on tasks that the old version ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evolution {
    /// Nothing: the new version applies to new work only.
    #[default]
    Nothing,
    /// Failed tasks run again.
    FailedAgain,
    /// Tasks that succeeded or failed run again.
    AllAgain,
}

impl Task {
    /// Returns whether the task can run again on request. Events are handled once, so the task of a
    /// stream can run again only if it is pending or failed.
    pub fn can_run_again(&self) -> bool {
        mutant!(EventsAgain => return true);
        self.cursor.is_none() || matches!(self.state, State::Pending | State::Failed)
    }

    /// Returns the task due now, to run again on request. A running task runs again afterwards.
    #[must_use]
    pub fn retry(mut self, moment: TaskMoment) -> Self {
        let TaskMoment { now, version, .. } = moment;
        self.version = version;
        self.since = now;
        self.reset_attempts();
        self.excused = 0;
        match self.state {
            State::Running | State::Changed => self.move_to(State::Changed, now),
            _ => {
                self.move_to(State::Pending, now);
                self.due = Some(now);
            }
        }
        self
    }

    /// Returns the task for a newer version of its reaction's code, due again if `evolution` says
    /// so. Returns `None` if nothing changes.
    pub fn evolve(self, rules: &Rules, evolution: Evolution, moment: TaskMoment) -> Option<Self> {
        if self.needs >= rules.version {
            return None;
        }
        // Old code finishes the runs that it has claimed; the new code does the repeated run.
        let again = match evolution {
            Evolution::Nothing => false,
            Evolution::FailedAgain => self.state == State::Failed,
            Evolution::AllAgain => match self.state {
                State::Failed | State::Done => self.inside,
                State::Running | State::Changed => true,
                State::Pending | State::Stale => false,
            },
        };
        if !again || !self.can_run_again() {
            return None;
        }
        // Retrying a failed task is the same effect. Repeating a successful one is a new effect.
        let is_more = u64::from(self.state != State::Failed);
        let mut task = self.retry(moment);
        task.needs = rules.version;
        task.generation += is_more;
        Some(task)
    }
}
