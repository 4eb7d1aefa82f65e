//! Recurring tasks: a schedule says when they run next.

use jiff::Timestamp;

use super::record::{State, Task, TaskKey};
use super::rules::{Rules, TaskMoment};
use crate::react::define::Every;

impl Task {
    /// Returns the task of a recurring reaction when its schedule may have changed: due at the next
    /// scheduled time. Returns `None` if nothing changes.
    pub fn schedule(
        task: Option<Self>,
        key: &TaskKey,
        every: &Every,
        rules: &Rules,
        moment: TaskMoment,
    ) -> Option<Self> {
        let TaskMoment { now, version, .. } = moment;
        let mut task = match task {
            None => {
                let task = Self::new(key, rules, now);
                Self { inside: true, generation: task.generation + 1, ..task }
            }
            // A running task is scheduled when its run ends.
            Some(task) if matches!(task.state, State::Running | State::Changed) => return None,
            Some(task) => task,
        };
        let next = Some(every.next(now));
        if task.state == State::Pending && task.due == next {
            return None;
        }
        task.move_to(State::Pending, now);
        task.due = next;
        task.needs = task.needs.max(rules.version);
        task.version = version;
        Some(task)
    }

    /// Schedules the next run of a recurring reaction after a run ended, successfully or not.
    pub(super) fn reschedule(&mut self, rules: &Rules, now: Timestamp) {
        if let Some(every) = &rules.every
            && !self.can_be_due()
        {
            self.reset_attempts();
            self.generation += 1;
            self.since = now;
            self.move_to(State::Pending, now);
            self.due = Some(every.next(now));
            self.check_at = None;
        }
    }
}
