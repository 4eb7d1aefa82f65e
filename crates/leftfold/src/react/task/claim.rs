//! Claims: a task is taken by a worker, kept, and given back.

use jiff::Timestamp;

use super::record::{State, Task};
use super::rules::{Rules, TaskMoment};
use super::suspicion::Suspicion;
use crate::mutant;
use crate::react::time::later;

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
