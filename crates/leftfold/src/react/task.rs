//! A task: what a reaction still has to do for a document, as a state machine over plain values.
//!
//! A task is changed by two parties that know nothing of each other: planners, who [look](Task::observe) at the document, and
//! runners, who [claim](Task::claim) it and [finish](Task::finish) it. Each computes the task as it is to be from the task as it was, and a
//! store takes it only if nobody else changed it meanwhile. What a runner finds out about the document ends in a state from which the next
//! look decides: so whatever order things happen in, the last state of the document is handled.

use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use self::claim::{Loser, Suspicion};
use super::retry::{Every, Retry, later};
use crate::event::DocumentId;
use crate::json::Json;
use crate::planted::{Bug, planted};

mod claim;

/// Watched values that take more bytes are kept as their hash.
const MAX_WATCHED_BYTES: usize = 16 << 10;
/// The begin of watched values that are kept as their hash.
const HASH_BEGIN: &str = "{\"$leftfold\":\"sha256:";
/// How many bytes of the begin, and of the end, of a long error text are kept.
const CUT_BYTES: usize = 4 << 10;
/// The begin of the error of a task whose document can't be read.
const UNREADABLE: &str = "the document can't be read: ";
/// How many runs can be remembered.
pub(super) const MAX_HISTORY: usize = 1_000;
/// How many bytes of error texts are remembered with them.
const MAX_HISTORY_BYTES: usize = 256 << 10;

/// Tells a task from others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskKey {
    /// The reaction's name.
    pub reaction: String,
    /// The document's id.
    pub document: DocumentId,
}

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is to be run when it is due.
    Pending,
    /// Somebody runs it, until its claim ends.
    Running,
    /// Somebody runs it, and what it is about has changed meanwhile.
    Changed,
    /// The document's last state was handled.
    Done,
    /// There is nothing to handle: the document is gone, does not match, or was not what it was planned for.
    Stale,
    /// It failed too often. It waits for somebody, or for the document to change.
    Failed,
}

/// One run, as it is remembered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// When it ended.
    pub at: Timestamp,
    /// How long it took, in milliseconds.
    pub millis: u64,
    /// How it ended.
    pub outcome: Ended,
    /// What went wrong, if something did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// The handler succeeded.
    Done,
    /// The document was not, or no longer, what it was planned for.
    Stale,
    /// The handler failed.
    Failed,
    /// The handler asked for another time.
    Deferred,
    /// Nobody heard of it again: its process died, or took too long.
    Lost,
}

/// What a reaction has to do for a document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Which one it is.
    #[serde(flatten)]
    pub key: TaskKey,
    /// A number that is another one after each change: it tells what a change was computed from.
    pub version: u64,
    /// Where it is.
    pub state: State,
    /// Whether the document matched when it was last looked at.
    pub inside: bool,
    /// Raised with each claim, and when one is lost: a claim that is not the last one is void. It
    /// begins with the time, so that it grows even if the task was deleted and is there again.
    pub epoch: u64,
    /// Raised with each state of the document that is to be handled: it names the effect, however often it is tried. It begins with the time, too.
    pub generation: u64,
    /// The watched values of that state.
    pub watched: Json,
    /// Pending: not to be run before. Claimed: when the claim ends.
    pub due: Option<Timestamp>,
    /// Since when there is something to handle.
    pub since: Timestamp,
    /// When the document is to be looked at again, though nothing has changed.
    pub check_at: Option<Timestamp>,
    /// The least version of the reaction's code that may run it.
    pub needs: u32,
    /// How often it was claimed for what it is about now.
    pub attempts: u32,
    /// When it failed for the first time.
    pub first_failed: Option<Timestamp>,
    /// What went wrong last.
    pub error: Option<String>,
    /// Who has claimed it.
    pub owner: Option<String>,
    /// When that was.
    pub claimed_at: Option<Timestamp>,
    /// When it was last done.
    pub done_at: Option<Timestamp>,
    /// When it last changed its state.
    pub changed_at: Timestamp,
    /// The last runs, the latest at the end.
    pub history: Vec<Run>,
    /// Where a reaction to events is in its stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
    /// How strongly it is suspected of killing the processes that run it.
    #[serde(default, skip_serializing_if = "Suspicion::is_none")]
    pub suspicion: Suspicion,
    /// How often the loss of a claim was not held against it, since a run last ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub excused: u8,
}

/// Where a reaction to events is in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// All wanted events up to this revision are handled.
    pub handled: u64,
    /// The last wanted event has this revision, as far as is known.
    pub last: u64,
}

/// What a look at the document found.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// There is none.
    Absent,
    /// It can't be read, for this reason.
    Unreadable(String),
    /// It does not match.
    Outside,
    /// It matches, and these are the watched values.
    Inside(Json),
}

/// How a run ended, as the handler says.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It is handled.
    Done,
    /// The event with this revision is handled; others may follow.
    Handled(u64),
    /// It is not what it was planned for.
    Stale,
    /// It could not be handled.
    Failed(String),
    /// Not now: not before this time. The attempt does not count.
    Deferred(Timestamp),
}

/// What a reaction wants of its tasks.
#[derive(Clone, Debug)]
pub struct Rules {
    /// How long a document must be quiet before it is handled.
    pub debounce: Duration,
    /// The longest that can take, if it never is.
    pub at_most: Duration,
    /// What happens after failures.
    pub retry: Retry,
    /// How many runs are remembered.
    pub history: usize,
    /// How long a claim lasts.
    pub visibility: Duration,
    /// The version of the reaction's code.
    pub version: u32,
    /// When it is done again, whatever happens: for what is not about documents.
    pub every: Option<Every>,
}

/// The moment at which something happens, and what chance has to say.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The store's time.
    pub now: Timestamp,
    /// What is to be the task's version then.
    pub version: u64,
    /// From 0 to 1.
    pub chance: f64,
}

impl Task {
    /// What becomes of a task when its document is looked at: the task as it is to be, or `None` if nothing changes.
    ///
    /// `check_at` is when the answer of the reaction's filter may be another one though the document does not change.
    pub fn observe(
        task: Option<Self>,
        key: &TaskKey,
        seen: Seen,
        check_at: Option<Timestamp>,
        rules: &Rules,
        moment: Moment,
    ) -> Option<Self> {
        let Moment { now, version, .. } = moment;
        let before = match (task, &seen) {
            (Some(task), _) => task,
            (None, Seen::Inside(_) | Seen::Unreadable(_)) => Self::new(key, rules, now),
            // It need not be remembered, unless it is to be looked at again.
            (None, _) if check_at.is_none() => return None,
            (None, _) => Self::new(key, rules, now),
        };
        let mut task = Self { check_at, ..before.clone() };
        match seen {
            Seen::Absent | Seen::Outside if planted(Bug::LeaveUnseen) => {}
            Seen::Absent | Seen::Outside => {
                task.inside = false;
                if before.inside && !planted(Bug::LeaveUnconfirmed) {
                    // This may be written long after the document was seen, when it is back as it was, which changes nothing in the task. From here on
                    // whoever sees it inside changes the task: so the next look is right.
                    task.check_at = Some(now);
                }
                if task.state == State::Pending || task.is_unreadable() {
                    task.move_to(State::Stale, now);
                    task.due = None;
                } else if before.inside {
                    task.changed_at = now;
                }
            }
            Seen::Unreadable(_) if planted(Bug::UnreadableIgnored) => {}
            Seen::Unreadable(why) => {
                task.inside = false;
                if matches!(task.state, State::Running | State::Changed) {
                    // Its run says first how it ended.
                    task.check_at = Some(later(now, rules.visibility));
                } else {
                    let error = Some(cut(&format!("{UNREADABLE}{why}")));
                    if task.state != State::Failed || task.error != error {
                        task.error = error;
                        task.give_up(now);
                    }
                }
            }
            Seen::Inside(watched) => {
                // What ended as stale was not handled, even if the document is what it was planned for again.
                let is_new =
                    !before.inside || kept(before.watched.clone()) != watched || before.state == State::Stale;
                if is_new {
                    // Since when something waits: a document that changes all the time must not be waited for without end.
                    let waits = matches!(before.state, State::Pending | State::Running | State::Changed)
                        || before.inside && before.state == State::Stale;
                    task.since = if waits { before.since } else { now };
                    task.inside = true;
                    task.watched = watched;
                    task.renew(rules, now);
                }
            }
        }
        if task == before && before.version != 0 {
            return None;
        }
        task.version = version;
        Some(task)
    }

    /// What becomes of a task when its document has changed, and nobody is here who could tell what that means: the next one who can is to look.
    ///
    /// Also if somebody is to look already, the task is another one afterwards: a look from before this change must not be taken for it.
    #[must_use]
    pub fn look_again(task: Option<Self>, key: &TaskKey, moment: Moment) -> Self {
        let mut task = task.unwrap_or_else(|| Self::unplanned(key, moment.now));
        task.check_at = Some(task.check_at.map_or(moment.now, |at| at.min(moment.now)));
        task.version = moment.version;
        task
    }

    /// What becomes of the task of something that is done again and again, when its times may have changed: due at the next of them. `None` if
    /// nothing changes.
    pub fn schedule(
        task: Option<Self>,
        key: &TaskKey,
        every: &Every,
        rules: &Rules,
        moment: Moment,
    ) -> Option<Self> {
        let Moment { now, version, .. } = moment;
        let mut task = match task {
            None => {
                let task = Self::new(key, rules, now);
                Self { inside: true, generation: task.generation + 1, ..task }
            }
            // One that runs is given its next time when it ends.
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

    /// What is done again and again waits for its next time when it has ended, however that was.
    fn go_on(&mut self, rules: &Rules, now: Timestamp) {
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
        let before = u64::try_from(now.as_millisecond()).unwrap_or(0);
        let before = if planted(Bug::NumbersAgain) { 0 } else { before };
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
    pub(super) fn is_unreadable(&self) -> bool {
        self.state == State::Failed && self.error.as_ref().is_some_and(|error| error.starts_with(UNREADABLE))
    }

    /// There is something new to handle.
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

    /// When the document has been quiet for long enough, or has not been for too long.
    fn quiet_at(&self, rules: &Rules, now: Timestamp) -> Timestamp {
        later(now, rules.debounce).min(later(self.since, rules.at_most)).max(now)
    }

    fn forget_failures(&mut self) {
        // A run that is under way has begun to count already.
        self.attempts = 0;
        self.first_failed = None;
    }

    fn move_to(&mut self, state: State, now: Timestamp) {
        self.state = state;
        self.changed_at = now;
    }

    fn give_up(&mut self, now: Timestamp) {
        self.move_to(State::Failed, now);
        self.due = None;
        self.owner = None;
    }

    /// The task when a run has ended. `None` if its claim no longer stands: then what it did is not known here.
    #[expect(clippy::needless_pass_by_value, reason = "a run says once how it ended")]
    pub fn finish(mut self, epoch: u64, outcome: Outcome, rules: &Rules, moment: Moment) -> Option<Self> {
        let Moment { now, version, chance } = moment;
        if !self.is_claimed(epoch) && !planted(Bug::LostClaimCounts) {
            return None;
        }
        self.version = version;
        let (ended, error) = match &outcome {
            Outcome::Done | Outcome::Handled(_) => (Ended::Done, None),
            Outcome::Stale => (Ended::Stale, None),
            Outcome::Failed(error) => (Ended::Failed, Some(cut(error))),
            Outcome::Deferred(_) => (Ended::Deferred, None),
        };
        self.remember(ended, error.clone(), rules, now);
        self.owner = None;
        self.due = None;
        // Its process has survived it.
        (self.suspicion, self.excused) = (Suspicion::None, 0);
        if let Some(error) = error {
            self.error = Some(error);
        }
        if matches!(outcome, Outcome::Done | Outcome::Handled(_)) {
            self.done_at = Some(now);
            self.error = None;
        }
        if self.state == State::Changed && !planted(Bug::ChangedIsDone) {
            if outcome == Outcome::Done {
                // What was there before is handled; only the change waits.
                self.since = self.changed_at;
            }
            self.again_or_stale(rules, now);
            return Some(self);
        }
        match outcome {
            Outcome::Done => self.move_to(State::Done, now),
            Outcome::Handled(revision) => self.pass(revision, now),
            // The document has left meanwhile, or can't be read: there is nothing to try again. The next
            // look tells which.
            Outcome::Failed(_) | Outcome::Deferred(_) if !self.inside => {
                self.move_to(State::Stale, now);
                self.check_at = Some(now);
            }
            Outcome::Stale => {
                self.move_to(State::Stale, now);
                // The document may be again what it was planned for, without another change.
                if !planted(Bug::StaleIsOver) {
                    self.check_at = Some(now);
                }
            }
            Outcome::Deferred(until) => {
                self.attempts = self.attempts.saturating_sub(1);
                self.move_to(State::Pending, now);
                self.due = Some(until.max(now));
            }
            Outcome::Failed(_) => {
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
        Some(self)
    }

    /// An event is handled: on to the next one of its stream.
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

    /// What becomes of a stream's task when wanted events were found in it, the first and the last of which have these revisions. `None` if
    /// nothing changes.
    pub fn observe_events(
        task: Option<Self>,
        key: &TaskKey,
        (first, last): (u64, u64),
        rules: &Rules,
        moment: Moment,
    ) -> Option<Self> {
        let Moment { now, version, .. } = moment;
        let mut task = task.unwrap_or_else(|| Self { inside: true, ..Self::new(key, rules, now) });
        let cursor = task.cursor.get_or_insert(Cursor { handled: first.saturating_sub(1), last: 0 });
        if last <= cursor.last {
            return None;
        }
        cursor.last = last;
        task.version = version;
        // One that runs goes on when it ends; one that has failed holds up its stream until somebody decides.
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

    /// What changed during a run is handled next, if there is still something to handle.
    fn again_or_stale(&mut self, rules: &Rules, now: Timestamp) {
        if self.inside {
            self.move_to(State::Pending, now);
            self.due = Some(self.quiet_at(rules, now));
        } else {
            self.move_to(State::Stale, now);
        }
    }

    /// Whether it can be run again when somebody wants it. Events are handled once, whatever anybody wants: of a stream only what waits or has failed can.
    pub fn can_run_again(&self) -> bool {
        self.cursor.is_none()
            || matches!(self.state, State::Pending | State::Failed)
            || planted(Bug::EventsAgain)
    }

    /// The task when somebody wants it to be run again, now. One that is running runs again afterwards.
    #[must_use]
    pub fn retry(mut self, moment: Moment) -> Self {
        let Moment { now, version, .. } = moment;
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

    /// The task for a newer version of its reaction's code, run again if that is wanted. `None` if nothing changes.
    pub fn evolve(self, rules: &Rules, evolution: Evolution, moment: Moment) -> Option<Self> {
        if self.needs >= rules.version {
            return None;
        }
        // What is claimed by old code is finished by it; what it should do again is done by the new code.
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
        // What has failed is tried again; what was done is done once more, and that is another effect.
        let is_more = u64::from(self.state != State::Failed);
        let mut task = self.retry(moment);
        task.needs = rules.version;
        task.generation += is_more;
        Some(task)
    }

    fn remember(&mut self, outcome: Ended, error: Option<String>, rules: &Rules, now: Timestamp) {
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

    /// What stays the same for all attempts to handle one state of the document, and is another one for the next.
    pub fn idempotency_key(&self) -> String {
        if planted(Bug::KeyPerAttempt) {
            return format!("{}/{}/{}/{}", self.key.reaction, self.key.document, self.generation, self.epoch);
        }
        format!("{}/{}/{}", self.key.reaction, self.key.document, self.generation)
    }
}

/// The watched values as a task keeps them: large ones as their hash, so that a task fits wherever it is stored.
pub(super) fn kept(watched: Json) -> Json {
    let bytes = watched.as_str().len();
    if bytes <= MAX_WATCHED_BYTES {
        return watched;
    }
    let mut kept = HASH_BEGIN.to_owned();
    for byte in Sha256::digest(watched.as_str()) {
        // Writing to a text does not fail.
        let _ = write!(kept, "{byte:02x}");
    }
    let _ = write!(kept, "\",\"bytes\":{bytes}}}");
    Json::stored(kept)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u8) -> bool {
    *number == 0
}

/// Whether watched values are kept as their hash.
pub(super) fn is_hash(watched: &Json) -> bool {
    watched.as_str().starts_with(HASH_BEGIN)
}

/// An error text as a task keeps it: of a long one the begin and the end.
fn cut(error: &str) -> String {
    if error.len() <= 2 * CUT_BYTES || planted(Bug::ErrorsUncut) {
        return error.to_owned();
    }
    let (begin, end) =
        (error.floor_char_boundary(CUT_BYTES), error.ceil_char_boundary(error.len() - CUT_BYTES));
    let left_out = end - begin;
    format!("{} … {left_out} bytes are left out … {}", &error[..begin], &error[end..])
}

/// What a new version of a reaction's code does with tasks that the old one ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evolution {
    /// Nothing: it is for what comes.
    #[default]
    Nothing,
    /// What has failed is tried again.
    FailedAgain,
    /// What was done or has failed is done again.
    AllAgain,
}

#[cfg(test)]
mod tests;
