//! Claims: how a task is taken by a worker, kept, given back, and lost.
//!
//! A claim that ends by itself is *lost*. Its task is first [reaped](Task::reap), and can then be
//! claimed again. If the worker has died, the task may be what killed it: it becomes a suspect, and
//! suspects run only among suspects, in ever smaller groups. A loss counts as an attempt only where
//! the task ran alone, because only then no other task can be to blame.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Ended, Rules, State, Task, TaskMoment};
use crate::mutant;
use crate::react::define::later;

/// The number of losses that are excused. A stalled worker looks like a dead one, and the handler
/// itself may stall it, so excuses must end.
const MAX_EXCUSES: u8 = 3;

/// The error of a task whose claim was lost with its process.
const DIED: &str = "the process ended during the run";
/// The error of a task whose claim was lost by a worker that is alive.
const SURVIVED: &str = "the run's claim ended, because its worker could not renew it";

/// The suspicion that a task kills the processes that run it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Suspicion {
    /// No suspicion: the task runs among all others.
    #[default]
    None,
    /// The process died once: the task runs among at most 64 suspects.
    Many,
    /// The process died again: the task runs among at most 8 suspects.
    Few,
    /// The process died once more: the task runs alone.
    Alone,
}

impl Suspicion {
    /// The levels of suspects, the weakest first.
    pub const SUSPECTS: [Self; 3] = [Self::Many, Self::Few, Self::Alone];

    /// Returns a number that grows with the suspicion, 0 for none: for stores.
    pub fn level(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Many => 1,
            Self::Few => 2,
            Self::Alone => 3,
        }
    }

    /// Returns how many tasks of this level may run in one process at the same time.
    pub(in crate::react) fn group(self) -> usize {
        mutant!(NeverAlone => return 8);
        match self {
            Self::None => usize::MAX,
            Self::Many => 64,
            Self::Few => 8,
            Self::Alone => 1,
        }
    }

    fn raised(self) -> Self {
        match self {
            Self::None => Self::Many,
            Self::Many => Self::Few,
            Self::Few | Self::Alone => Self::Alone,
        }
    }

    fn lowered(self) -> Self {
        match self {
            Self::None | Self::Many => Self::None,
            Self::Few => Self::Many,
            Self::Alone => Self::Few,
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(super) fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// The worker that has lost a claim, as far as others can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loser {
    /// The worker is silent: its process has died.
    Dead,
    /// The worker is alive, but could not keep the claim.
    Alive,
}

impl Task {
    /// Returns whether the task can be claimed, now or later.
    pub fn can_be_due(&self) -> bool {
        self.due.is_some() && matches!(self.state, State::Pending | State::Running | State::Changed)
    }

    /// Returns whether the task can be claimed now, or its claim has ended.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.can_be_due() && self.due.is_some_and(|due| due <= now)
    }

    /// Returns the suspicion under which the task waits to be claimed. A claimed task waits under
    /// none: every worker reaps it once its claim is lost.
    pub fn waits_under(&self) -> Suspicion {
        if self.state == State::Pending { self.suspicion } else { Suspicion::None }
    }

    /// Returns whether a claim has ended by itself.
    pub fn is_lost(&self, now: Timestamp) -> bool {
        self.state != State::Pending && self.is_due(now)
    }

    /// Returns the task as claimed by a worker, or `None` if it can't be claimed. A task whose
    /// claim is lost must be [reaped](Self::reap) first.
    pub fn claim(self, owner: &str, rules: &Rules, moment: TaskMoment) -> Option<Self> {
        if self.state != State::Pending || !self.is_due(moment.now) {
            return None;
        }
        mutant!(OldCodeRuns => return Some(self.claimed(owner, rules, moment)));
        (self.needs <= rules.version).then(|| self.claimed(owner, rules, moment))
    }

    fn claimed(mut self, owner: &str, rules: &Rules, moment: TaskMoment) -> Self {
        let TaskMoment { now, version, .. } = moment;
        self.version = version;
        self.epoch += 1;
        self.attempts = self.attempts.saturating_add(1);
        self.move_to(State::Running, now);
        self.due = Some(later(now, rules.visibility));
        self.owner = Some(owner.to_owned());
        self.claimed_at = Some(now);
        self
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
        self.remember(Ended::Lost, Some(error.to_owned()), rules, now);
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
            self.go_on(rules, now);
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

    /// Returns whether a claim still stands.
    pub fn is_claimed(&self, epoch: u64) -> bool {
        self.epoch == epoch && matches!(self.state, State::Running | State::Changed)
    }

    /// Returns the task with its claim made longer, or `None` if the claim no longer stands.
    pub fn renew_claim(mut self, epoch: u64, rules: &Rules, moment: TaskMoment) -> Option<Self> {
        if !self.is_claimed(epoch) {
            return None;
        }
        self.version = moment.version;
        self.due = Some(later(moment.now, rules.visibility));
        Some(self)
    }

    /// Returns the task with its claim given back before it ran: it is due at once, and no attempt
    /// counts. Returns `None` if the claim no longer stands.
    pub fn give_back(mut self, epoch: u64, moment: TaskMoment) -> Option<Self> {
        if !self.is_claimed(epoch) {
            return None;
        }
        self.version = moment.version;
        self.attempts = self.attempts.saturating_sub(1);
        self.owner = None;
        self.move_to(State::Pending, moment.now);
        self.due = Some(moment.now);
        Some(self)
    }
}
