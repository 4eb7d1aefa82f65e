//! The state of a task.

use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::claim::Suspicion;
use crate::event::DocumentId;
use crate::json::Json;
use crate::mutant;
use crate::react::define::{Every, Retry, later};

/// The size above which watched values are kept as their hash.
const MAX_WATCHED_BYTES: usize = 16 << 10;
/// The prefix of watched values that are kept as their hash.
const HASH_BEGIN: &str = "{\"$leftfold\":\"sha256:";
/// The number of bytes kept of the beginning, and of the end, of a long error text.
const CUT_BYTES: usize = 4 << 10;
/// The prefix of the error of a task whose document can't be read.
const UNREADABLE: &str = "the document can't be read: ";
/// The maximum number of runs in a history.
pub(crate) const MAX_HISTORY: usize = 1_000;
/// The maximum number of bytes of error texts in a history.
const MAX_HISTORY_BYTES: usize = 256 << 10;

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

/// The progress of a reaction to events in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamProgress {
    /// The revision up to which all wanted events are handled.
    pub handled: u64,
    /// The revision of the last wanted event known so far.
    pub last: u64,
}

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

/// The outcome of a run, as the handler reports it.
#[derive(Clone, Debug, PartialEq)]
pub enum RunOutcome {
    /// The handler succeeded.
    Done,
    /// The event with this revision is handled; others may follow.
    Handled(u64),
    /// The document is not what the task was planned for.
    Stale,
    /// The handler failed with this error.
    Failed(String),
    /// The handler deferred the task to this time. The attempt does not count.
    Deferred(Timestamp),
}

/// The settings of a reaction that apply to its tasks.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The time for which a document must be unchanged before it is handled.
    pub debounce: Duration,
    /// The longest wait for a document that keeps changing.
    pub at_most: Duration,
    /// The retry policy.
    pub retry: Retry,
    /// The maximum number of runs in the history.
    pub history: usize,
    /// The length of a claim.
    pub visibility: Duration,
    /// The version of the reaction's code.
    pub version: u32,
    /// The schedule, for a recurring reaction.
    pub every: Option<Every>,
}

/// The inputs of a decision that differ on each call: the time and random values.
#[derive(Clone, Copy, Debug)]
pub struct TaskMoment {
    /// The store's time.
    pub now: Timestamp,
    /// The version of the resulting task.
    pub version: u64,
    /// A random number from 0 to 1.
    pub chance: f64,
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
            Observation::Unreadable(why) => task.fail_unreadable(&why, rules, now),
            Observation::Inside(watched) => task.enter(watched, rules, now),
        }
        if task == before && before.version != 0 {
            return None;
        }
        task.version = version;
        Some(task)
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
    fn fail_unreadable(&mut self, why: &str, rules: &Rules, now: Timestamp) {
        mutant!(UnreadableIgnored => return);
        self.inside = false;
        if matches!(self.state, State::Running | State::Changed) {
            // The run reports its outcome first.
            self.check_at = Some(later(now, rules.visibility));
            return;
        }
        let error = Some(cut(&format!("{UNREADABLE}{why}")));
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
    pub(super) fn go_on(&mut self, rules: &Rules, now: Timestamp) {
        if let Some(every) = &rules.every
            && !self.can_be_due()
        {
            self.forget_failures();
            self.generation += 1;
            self.since = now;
            self.move_to(State::Pending, now);
            self.due = Some(every.next(now));
            self.check_at = None;
        }
    }

    fn new(key: &TaskKey, rules: &Rules, now: Timestamp) -> Self {
        Self { needs: rules.version, ..Self::unplanned(key, now) }
    }

    fn unplanned(key: &TaskKey, now: Timestamp) -> Self {
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

    /// Returns whether the task has failed because its document can't be read.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.state == State::Failed && self.error.as_ref().is_some_and(|error| error.starts_with(UNREADABLE))
    }

    /// Records that there is a new state to handle.
    fn renew(&mut self, rules: &Rules, now: Timestamp) {
        self.generation += 1;
        self.needs = self.needs.max(rules.version);
        if rules.retry.reset_on_change || self.first_failed.is_none() {
            self.forget_failures();
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
    fn quiet_at(&self, rules: &Rules, now: Timestamp) -> Timestamp {
        later(now, rules.debounce).min(later(self.since, rules.at_most)).max(now)
    }

    fn forget_failures(&mut self) {
        // The current run, if any, is already counted.
        self.attempts = 0;
        self.first_failed = None;
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

    /// Returns the task after a run ended. Returns `None` if its claim no longer stands: then the
    /// outcome of the run is ignored.
    pub fn finish(self, epoch: u64, outcome: RunOutcome, rules: &Rules, moment: TaskMoment) -> Option<Self> {
        mutant!(LostClaimCounts => return Some(self.ended(outcome, rules, moment)));
        self.is_claimed(epoch).then(|| self.ended(outcome, rules, moment))
    }

    #[expect(clippy::needless_pass_by_value, reason = "a run ends once")]
    fn ended(mut self, outcome: RunOutcome, rules: &Rules, moment: TaskMoment) -> Self {
        let TaskMoment { now, version, chance } = moment;
        self.version = version;
        let (ended, error) = match &outcome {
            RunOutcome::Done | RunOutcome::Handled(_) => (Ended::Done, None),
            RunOutcome::Stale => (Ended::Stale, None),
            RunOutcome::Failed(error) => (Ended::Failed, Some(cut(error))),
            RunOutcome::Deferred(_) => (Ended::Deferred, None),
        };
        self.remember(ended, error.clone(), rules, now);
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
            self.again_or_stale(rules, now);
            return self;
        }
        match outcome {
            RunOutcome::Done => self.move_to(State::Done, now),
            RunOutcome::Handled(revision) => self.pass(revision, now),
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
                match rules.retry.next(self.attempts, first, now, chance) {
                    Some(at) => {
                        self.move_to(State::Pending, now);
                        self.due = Some(at);
                    }
                    None => self.give_up(now),
                }
            }
        }
        self.go_on(rules, now);
        self
    }

    /// Records that an event is handled, and continues with the next one of its stream.
    fn pass(&mut self, revision: u64, now: Timestamp) {
        self.move_to(State::Done, now);
        if let Some(cursor) = &mut self.cursor {
            cursor.handled = cursor.handled.max(revision);
            if cursor.handled < cursor.last {
                self.forget_failures();
                self.generation += 1;
                self.move_to(State::Pending, now);
                self.due = Some(now);
            }
        }
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
            task.forget_failures();
            task.generation += 1;
            task.needs = task.needs.max(rules.version);
            task.move_to(State::Pending, now);
            task.due = Some(now);
        }
        Some(task)
    }

    /// Runs the task again after a change during its run, if there is still something to handle.
    fn again_or_stale(&mut self, rules: &Rules, now: Timestamp) {
        if self.inside {
            self.move_to(State::Pending, now);
            self.due = Some(self.quiet_at(rules, now));
        } else {
            self.move_to(State::Stale, now);
        }
    }

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
        self.forget_failures();
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

    pub(super) fn remember(&mut self, outcome: Ended, error: Option<String>, rules: &Rules, now: Timestamp) {
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

    /// Returns a text that is the same for all attempts to handle one state of the document, and
    /// different for the next state.
    pub fn idempotency_key(&self) -> String {
        let TaskKey { reaction, document } = &self.key;
        let generation = self.generation;
        mutant!(KeyPerAttempt => return format!("{reaction}/{document}/{generation}/{}", self.epoch));
        format!("{reaction}/{document}/{generation}")
    }
}

/// Returns the number before the first one of a new task. It is the time, so that numbers grow even
/// if the task is deleted and created again.
fn number_before(now: Timestamp) -> u64 {
    mutant!(NumbersAgain => return 0);
    u64::try_from(now.as_millisecond()).unwrap_or(0)
}

/// Returns the watched values as a task keeps them. Large values become their hash, so that every
/// store can hold the task.
pub(crate) fn kept(watched: Json) -> Json {
    let bytes = watched.as_str().len();
    if bytes <= MAX_WATCHED_BYTES {
        return watched;
    }
    let mut kept = HASH_BEGIN.to_owned();
    for byte in Sha256::digest(watched.as_str()) {
        // Writing to a string can't fail.
        let _ = write!(kept, "{byte:02x}");
    }
    let _ = write!(kept, "\",\"bytes\":{bytes}}}");
    Json::stored(kept)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u8) -> bool {
    *number == 0
}

/// Returns whether the watched values are a hash.
pub(crate) fn is_hash(watched: &Json) -> bool {
    watched.as_str().starts_with(HASH_BEGIN)
}

/// Returns an error text as a task keeps it: of a long text only the beginning and the end.
fn cut(error: &str) -> String {
    mutant!(ErrorsUncut => return error.to_owned());
    if error.len() <= 2 * CUT_BYTES {
        return error.to_owned();
    }
    let (begin, end) =
        (error.floor_char_boundary(CUT_BYTES), error.ceil_char_boundary(error.len() - CUT_BYTES));
    let left_out = end - begin;
    format!("{} … {left_out} bytes are left out … {}", &error[..begin], &error[end..])
}

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
