//! Observations: a task changes because its document or its stream changed.

use jiff::Timestamp;

use super::record::{State, StreamProgress, Task, TaskKey};
use super::rules::{Rules, TaskMoment};
use super::size::{cut, kept};
use crate::json::Json;
use crate::mutant;
use crate::react::time::later;

/// The prefix of the error of a task whose document can't be read.
const UNREADABLE: &str = "the document can't be read: ";

/// The result of observing a document.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    /// The document does not exist.
    Absent,
    /// The document can't be read, for this reason.
    Unreadable(String),
    /// The document does not match.
    Outside,
    /// The document matches, and these are its watched values.
    Inside(Json),
}

impl Task {
    /// Returns the task after its document was observed, or `None` if nothing changes.
    ///
    /// `check_at` is the time at which the reaction's filter may give another result for an
    /// unchanged document.
    pub fn observe(
        task: Option<Self>,
        key: &TaskKey,
        seen: Observation,
        check_at: Option<Timestamp>,
        rules: &Rules,
        moment: TaskMoment,
    ) -> Option<Self> {
        let TaskMoment { now, version, .. } = moment;
        let before = match (task, &seen) {
            (Some(task), _) => task,
            (None, Observation::Inside(_) | Observation::Unreadable(_)) => Self::new(key, rules, now),
            // Such a document needs no task, unless it must be observed again.
            (None, _) if check_at.is_none() => return None,
            (None, _) => Self::new(key, rules, now),
        };
        let mut task = Self { check_at, ..before.clone() };
        match seen {
            Observation::Absent | Observation::Outside => task.leave(now),
            Observation::Unreadable(reason) => task.fail_unreadable(&reason, rules, now),
            Observation::Inside(watched) => task.enter(watched, rules, now),
        }
        if task == before && before.version != 0 {
            return None;
        }
        task.version = version;
        Some(task)
    }

    /// Returns the task of a stream after wanted events were found in it. `first` and `last` are
    /// the lowest and highest of their revisions. Returns `None` if nothing changes.
    pub fn observe_events(
        task: Option<Self>,
        key: &TaskKey,
        (first, last): (u64, u64),
        rules: &Rules,
        moment: TaskMoment,
    ) -> Option<Self> {
        let TaskMoment { now, version, .. } = moment;
        let mut task = task.unwrap_or_else(|| Self { inside: true, ..Self::new(key, rules, now) });
        let cursor = task.cursor.get_or_insert(StreamProgress { handled: first.saturating_sub(1), last: 0 });
        if last <= cursor.last {
            return None;
        }
        cursor.last = last;
        task.version = version;
        // A running task continues when its run ends. A failed task blocks its stream until an
        // operator decides.
        if matches!(task.state, State::Done | State::Stale) {
            task.since = now;
            task.reset_attempts();
            task.generation += 1;
            task.needs = task.needs.max(rules.version);
            task.move_to(State::Pending, now);
            task.due = Some(now);
        }
        Some(task)
    }

    /// Returns the task after its document changed, if this process can't evaluate the change. The
    /// next process that can must observe the document.
    ///
    /// The version of the task changes even if an observation is already requested. Otherwise a
    /// look from before this change could pass for a later one.
    #[must_use]
    pub fn look_again(task: Option<Self>, key: &TaskKey, moment: TaskMoment) -> Self {
        let mut task = task.unwrap_or_else(|| Self::unplanned(key, moment.now));
        task.check_at = Some(task.check_at.map_or(moment.now, |at| at.min(moment.now)));
        task.version = moment.version;
        task
    }

    /// Records that the document does not match, or no longer.
    fn leave(&mut self, now: Timestamp) {
        mutant!(LeaveUnseen => return);
        let was_inside = std::mem::take(&mut self.inside);
        if self.state == State::Pending || self.is_unreadable() {
            self.move_to(State::Stale, now);
            self.due = None;
        } else if was_inside {
            self.changed_at = now;
        }
        mutant!(LeaveUnconfirmed => return);
        if was_inside {
            // This write may come long after the document was observed. The document may match
            // again by then, which changes nothing in the task. From here on an observation that it
            // matches changes the task, so the next look is right.
            self.check_at = Some(now);
        }
    }

    /// Records that the document can't be read.
    fn fail_unreadable(&mut self, reason: &str, rules: &Rules, now: Timestamp) {
        mutant!(UnreadableIgnored => return);
        self.inside = false;
        if matches!(self.state, State::Running | State::Changed) {
            // The run reports its outcome first.
            self.check_at = Some(later(now, rules.visibility));
            return;
        }
        let error = Some(cut(&format!("{UNREADABLE}{reason}")));
        if self.state != State::Failed || self.error != error {
            self.error = error;
            self.give_up(now);
        }
    }

    /// Records that the document matches and has these watched values.
    fn enter(&mut self, watched: Json, rules: &Rules, now: Timestamp) {
        // A task that ended as stale was not handled, even if the document is again what it was
        // planned for.
        let is_same = self.inside && kept(self.watched.clone()) == watched;
        if is_same && self.state != State::Stale {
            return;
        }
        // Keep the time since which work waits: a document that changes all the time must not delay
        // the task forever.
        let waits = matches!(self.state, State::Pending | State::Running | State::Changed)
            || self.inside && self.state == State::Stale;
        if !waits {
            self.since = now;
        }
        self.inside = true;
        self.watched = watched;
        self.renew(rules, now);
    }

    /// Returns whether the task has failed because its document can't be read.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.state == State::Failed && self.error.as_ref().is_some_and(|error| error.starts_with(UNREADABLE))
    }

    /// Records that there is a new state to handle.
    fn renew(&mut self, rules: &Rules, now: Timestamp) {
        self.generation += 1;
        self.needs = self.needs.max(rules.version);
        if rules.retry.reset_on_change || self.first_failed.is_none() {
            self.reset_attempts();
        }
        match self.state {
            State::Running => self.move_to(State::Changed, now),
            State::Changed => {}
            State::Pending | State::Done | State::Stale | State::Failed => {
                self.move_to(State::Pending, now);
                self.due = Some(self.quiet_at(rules, now));
            }
        }
    }

    /// Returns the time at which the document has been unchanged for long enough, or the wait has
    /// taken too long.
    pub(super) fn quiet_at(&self, rules: &Rules, now: Timestamp) -> Timestamp {
        later(now, rules.debounce).min(later(self.since, rules.at_most)).max(now)
    }
}
