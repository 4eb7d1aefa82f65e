//! The end of a run: its outcome moves the task on.

use jiff::Timestamp;

use super::history::Ended;
use super::record::{State, Task};
use super::rules::{Rules, TaskMoment};
use super::size::cut;
use super::suspicion::Suspicion;
use crate::mutant;

/// The outcome of a run, as the handler reports it.
#[derive(Clone, Debug, PartialEq)]
pub enum RunOutcome {
    /// The handler succeeded.
    Done,
    /// The event with this revision is handled; more may follow.
    Handled(u64),
    /// The document is not what the task was planned for.
    Stale,
    /// The handler failed with this error.
    Failed(String),
    /// The handler deferred the task to this time. The attempt does not count.
    Deferred(Timestamp),
}

impl Task {
    /// Returns the task after a run ended. Returns `None` if its claim no longer stands: then the
    /// outcome of the run is ignored.
    pub fn finish(self, epoch: u64, outcome: RunOutcome, rules: &Rules, moment: TaskMoment) -> Option<Self> {
        mutant!(LostClaimCounts => return Some(self.ended(outcome, rules, moment)));
        self.is_claimed(epoch).then(|| self.ended(outcome, rules, moment))
    }

    #[expect(clippy::needless_pass_by_value, reason = "a run ends once")]
    fn ended(mut self, outcome: RunOutcome, rules: &Rules, moment: TaskMoment) -> Self {
        let TaskMoment { now, version, random } = moment;
        self.version = version;
        let (ended, error) = match &outcome {
            RunOutcome::Done | RunOutcome::Handled(_) => (Ended::Done, None),
            RunOutcome::Stale => (Ended::Stale, None),
            RunOutcome::Failed(error) => (Ended::Failed, Some(cut(error))),
            RunOutcome::Deferred(_) => (Ended::Deferred, None),
        };
        self.record_run(ended, error.clone(), rules, now);
        self.owner = None;
        self.due = None;
        // The process survived the run.
        (self.suspicion, self.excused) = (Suspicion::None, 0);
        if let Some(error) = error {
            self.error = Some(error);
        }
        if matches!(outcome, RunOutcome::Done | RunOutcome::Handled(_)) {
            self.done_at = Some(now);
            self.error = None;
        }
        mutant!(ChangedIsDone => self.state = State::Running);
        if self.state == State::Changed {
            if outcome == RunOutcome::Done {
                // The state before the change is handled; only the change waits.
                self.since = self.changed_at;
            }
            self.run_again_or_end(rules, now);
            return self;
        }
        match outcome {
            RunOutcome::Done => self.move_to(State::Done, now),
            RunOutcome::Handled(revision) => self.advance(revision, now),
            // The document stopped matching meanwhile, or can't be read: there is nothing to retry.
            // The next observation tells which.
            RunOutcome::Failed(_) | RunOutcome::Deferred(_) if !self.inside => {
                self.move_to(State::Stale, now);
                self.check_at = Some(now);
            }
            RunOutcome::Stale => {
                self.move_to(State::Stale, now);
                mutant!(StaleIsOver => return self);
                // The document may again be what the task was planned for, without another change.
                self.check_at = Some(now);
            }
            RunOutcome::Deferred(until) => {
                self.attempts = self.attempts.saturating_sub(1);
                self.move_to(State::Pending, now);
                self.due = Some(until.max(now));
            }
            RunOutcome::Failed(_) => {
                let first = *self.first_failed.get_or_insert(now);
                match rules.retry.next(self.attempts, first, now, random) {
                    Some(at) => {
                        self.move_to(State::Pending, now);
                        self.due = Some(at);
                    }
                    None => self.give_up(now),
                }
            }
        }
        self.reschedule(rules, now);
        self
    }

    /// Runs the task again after a change during its run, if there is still something to handle.
    fn run_again_or_end(&mut self, rules: &Rules, now: Timestamp) {
        if self.inside {
            self.move_to(State::Pending, now);
            self.due = Some(self.quiet_at(rules, now));
        } else {
            self.move_to(State::Stale, now);
        }
    }

    /// Records that an event is handled, and continues with the next one of its stream.
    fn advance(&mut self, revision: u64, now: Timestamp) {
        self.move_to(State::Done, now);
        if let Some(cursor) = &mut self.cursor {
            cursor.handled = cursor.handled.max(revision);
            if cursor.handled < cursor.last {
                self.reset_attempts();
                self.generation += 1;
                self.move_to(State::Pending, now);
                self.due = Some(now);
            }
        }
    }
}
