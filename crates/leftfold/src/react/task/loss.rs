//! Lost claims: the task becomes pending again, and perhaps a suspect.
//!
//! A claim that ends by itself is *lost*. Its task is first [reaped](Task::reap), and can then be
//! claimed again. If the worker has died, the task may have killed it: it becomes a suspect, and
//! suspects run only among suspects, in ever smaller groups. A loss counts as an attempt only where
//! the task ran alone, because only then no other task can be to blame.

use jiff::Timestamp;

use super::history::Ended;
use super::record::{State, Task};
use super::rules::{Rules, TaskMoment};
use super::suspicion::Suspicion;
use crate::mutant;

/// The number of losses that are excused. A stalled worker looks like a dead one, and the handler
/// itself may stall it, so excuses must end.
const MAX_EXCUSES: u8 = 3;

/// The error of a task whose claim was lost with its process.
const DIED: &str = "the process ended during the run";

/// The error of a task whose claim was lost by a worker that is alive.
const SURVIVED: &str = "the run's claim ended, because its worker could not renew it";

/// The state of the worker that has lost a claim, as far as other workers can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loser {
    /// The worker is silent: its process has died.
    Dead,
    /// The worker is alive, but could not keep the claim.
    Alive,
}

impl Task {
    /// Returns whether a claim has ended by itself.
    pub fn is_lost(&self, now: Timestamp) -> bool {
        self.state != State::Pending && self.is_due(now)
    }

    /// Returns a task whose claim is lost as pending, or as failed if it was lost too often while
    /// it ran alone. Returns `None` if its claim is not lost.
    pub fn reap(mut self, loser: Loser, rules: &Rules, moment: TaskMoment) -> Option<Self> {
        let TaskMoment { now, version, .. } = moment;
        if !self.is_lost(now) {
            return None;
        }
        self.version = version;
        // The lost claim is void from here on.
        self.epoch += 1;
        let error = match loser {
            Loser::Dead => DIED,
            Loser::Alive => SURVIVED,
        };
        let was_running = self.state == State::Running;
        self.record_run(Ended::Lost, Some(error.to_owned()), rules, now);
        self.error = Some(error.to_owned());
        self.owner = None;
        self.move_to(State::Pending, now);
        self.due = Some(now);
        let counts = match loser {
            Loser::Dead => self.is_blamed(),
            Loser::Alive => !self.is_excused(),
        };
        if !counts {
            self.attempts = self.attempts.saturating_sub(1);
            return Some(self);
        }
        self.first_failed = self.first_failed.or(Some(now));
        if was_running && rules.retry.is_spent(self.attempts, self.first_failed, now) {
            self.give_up(now);
            self.reschedule(rules, now);
        }
        Some(self)
    }

    /// Returns the task with less suspicion, if the worker of this claim was taken for dead but is
    /// alive. Returns `None` if the suspicion has another reason, or the task was excused too
    /// often.
    pub fn acquit(mut self, epoch: u64, moment: TaskMoment) -> Option<Self> {
        // The task was reaped, and perhaps claimed once since then.
        let is_ours = self.epoch == epoch + 1 || self.epoch == epoch + 2;
        if !is_ours || self.error.as_deref() != Some(DIED) || !self.is_excused() {
            return None;
        }
        self.suspicion = self.suspicion.lowered();
        self.error = Some(SURVIVED.to_owned());
        self.version = moment.version;
        if self.state == State::Failed {
            self.attempts = self.attempts.saturating_sub(1);
            self.move_to(State::Pending, moment.now);
            self.due = Some(moment.now);
        }
        Some(self)
    }

    /// Returns a suspect that has run for long without harm, with less suspicion: other tasks run
    /// beside it from now on. Returns `None` if its claim no longer stands, or the task was excused
    /// too often.
    pub fn parole(mut self, epoch: u64, moment: TaskMoment) -> Option<Self> {
        if !self.is_claimed(epoch) || self.suspicion == Suspicion::None || !self.is_excused() {
            return None;
        }
        self.suspicion = self.suspicion.lowered();
        self.version = moment.version;
        Some(self)
    }

    /// Raises the suspicion after the process of a run died. Returns whether the loss counts as an
    /// attempt: only if the task ran alone.
    fn is_blamed(&mut self) -> bool {
        mutant!(LossIsNoSuspicion => return false);
        mutant!(EveryLossCounts => return true);
        let was_alone = self.suspicion == Suspicion::Alone;
        self.suspicion = self.suspicion.raised();
        mutant!(CrashIsNoAttempt => return false);
        was_alone
    }

    /// Counts an excuse for a loss. Returns whether any was left.
    fn is_excused(&mut self) -> bool {
        let is_excused = self.excused < MAX_EXCUSES;
        self.excused = self.excused.saturating_add(1);
        is_excused
    }
}
