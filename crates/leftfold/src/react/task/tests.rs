use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::event::DocumentId;
use crate::json::Json;
use crate::react::define::{Every, Retry, later};

// The numbers of a task start at its time, so they are small here.
const BEGIN: Timestamp = Timestamp::UNIX_EPOCH;

fn rules() -> Rules {
    Rules {
        debounce: Duration::ZERO,
        at_most: Duration::from_hours(1),
        retry: Retry::fixed(Duration::from_secs(5)).jitter(0.0).attempts(3),
        history: 3,
        visibility: Duration::from_mins(1),
        version: 1,
        every: None,
    }
}

fn key() -> TaskKey {
    TaskKey { reaction: "mail".to_owned(), document: DocumentId::new("cart-1").unwrap() }
}

fn at(second: i64) -> TaskMoment {
    let now = later(BEGIN, Duration::from_secs(second.unsigned_abs()));
    TaskMoment { now, version: 1_000 + second.unsigned_abs(), chance: 0.5 }
}

fn inside(value: u32) -> Observation {
    Observation::Inside(Json::of(&value).unwrap())
}

fn observe(task: Option<Task>, seen: Observation, rules: &Rules, second: i64) -> Option<Task> {
    Task::observe(task, &key(), seen, None, rules, at(second))
}

fn pending() -> Task {
    observe(None, inside(1), &rules(), 0).unwrap()
}

fn running() -> Task {
    pending().claim("w", &rules(), at(1)).unwrap()
}

#[test]
fn a_document_that_enters_is_due_at_once_and_one_that_does_not_is_not_remembered() {
    let task = pending();
    assert_eq!((task.state, task.due, task.generation), (State::Pending, Some(BEGIN), 1));
    assert_eq!(observe(None, Observation::Outside, &rules(), 0), None);
    assert_eq!(observe(None, Observation::Absent, &rules(), 0), None);
    assert_eq!(observe(Some(task), inside(1), &rules(), 5), None, "nothing has changed");
}

#[test]
fn what_leaves_before_it_ran_ends_as_stale_and_runs_when_it_comes_back() {
    for seen in [Observation::Outside, Observation::Absent] {
        let left = observe(Some(pending()), seen, &rules(), 3).unwrap();
        assert_eq!((left.state, left.due, left.inside), (State::Stale, None, false));
        let back = observe(Some(left), inside(1), &rules(), 4).unwrap();
        assert_eq!((back.state, back.generation), (State::Pending, 2), "also with the same values");
    }
}

#[test]
fn what_leaves_while_it_runs_is_not_tried_again() {
    for outcome in [RunOutcome::Failed("down".to_owned()), RunOutcome::Deferred(at(100).now)] {
        let left = observe(Some(running()), Observation::Outside, &rules(), 3).unwrap();
        assert_eq!((left.state, left.inside), (State::Running, false));
        let ended = left.finish(1, outcome, &rules(), at(4)).unwrap();
        assert_eq!((ended.state, ended.due), (State::Stale, None));
        // A document that comes back counts as a new match.
        assert_eq!(observe(Some(ended), inside(1), &rules(), 5).unwrap().state, State::Pending);
    }
}

#[test]
fn what_changes_while_it_runs_runs_again() {
    let changed = observe(Some(running()), inside(2), &rules(), 2).unwrap();
    assert_eq!((changed.state, changed.epoch), (State::Changed, 1));
    for outcome in [RunOutcome::Done, RunOutcome::Stale, RunOutcome::Failed("no".to_owned())] {
        let again = changed.clone().finish(1, outcome, &rules(), at(3)).unwrap();
        assert_eq!((again.state, again.due), (State::Pending, Some(at(3).now)));
        assert_eq!((again.attempts, again.generation), (0, 2));
    }
    let left = observe(Some(changed), Observation::Outside, &rules(), 3).unwrap();
    assert_eq!(left.finish(1, RunOutcome::Done, &rules(), at(4)).unwrap().state, State::Stale);
}

/// The document changes and changes back during a run: the run finds it changed, the next look
/// finds it unchanged.
#[test]
fn there_and_back_again_is_handled() {
    let stale = running().finish(1, RunOutcome::Stale, &rules(), at(2)).unwrap();
    assert_eq!((stale.state, stale.check_at), (State::Stale, Some(at(2).now)));
    let again = observe(Some(stale), inside(1), &rules(), 3).unwrap();
    assert_eq!((again.state, again.check_at), (State::Pending, None));
}

#[test]
fn quiet_is_waited_for_but_not_for_ever() {
    let rules = Rules { debounce: Duration::from_secs(10), at_most: Duration::from_secs(25), ..rules() };
    let mut task = observe(None, inside(0), &rules, 0).unwrap();
    assert_eq!(task.due, Some(at(10).now));
    for (second, due) in [(8, 18), (16, 25), (24, 25), (30, 30)] {
        task = observe(Some(task), inside(u32::try_from(second).unwrap()), &rules, second).unwrap();
        assert_eq!(task.due, Some(at(due).now), "changed at {second}");
    }
}

/// A document that changes between its plan and its run, again and again, is not delayed each time.
#[test]
fn what_was_not_handled_has_waited_already() {
    let rules = Rules { debounce: Duration::from_secs(10), at_most: Duration::from_secs(25), ..rules() };
    let task = observe(None, inside(0), &rules, 0).unwrap();
    let stale =
        task.claim("w", &rules, at(25)).unwrap().finish(1, RunOutcome::Stale, &rules, at(25)).unwrap();
    let again = observe(Some(stale), inside(1), &rules, 26).unwrap();
    let during = observe(None, inside(0), &rules, 0).unwrap().claim("w", &rules, at(25)).unwrap();
    let during = observe(Some(during), inside(1), &rules, 26).unwrap();
    for (outcome, due) in [(RunOutcome::Stale, 27), (RunOutcome::Done, 37)] {
        let after = during.clone().finish(1, outcome, &rules, at(27)).unwrap();
        assert_eq!(after.due, Some(at(due).now));
    }
    assert_eq!((again.since, again.due), (at(0).now, Some(at(26).now)));
    let done = again.claim("w", &rules, at(26)).unwrap().finish(2, RunOutcome::Done, &rules, at(27)).unwrap();
    assert_eq!(observe(Some(done), inside(2), &rules, 30).unwrap().due, Some(at(40).now));
}

#[test]
fn failures_are_tried_again_until_they_are_too_many() {
    let mut task = pending();
    for (attempt, second) in [(1, 0), (2, 10)] {
        task = task.claim("w", &rules(), at(second)).unwrap();
        assert_eq!((task.attempts, task.state), (attempt, State::Running));
        task = task
            .finish(u64::from(attempt), RunOutcome::Failed("no".to_owned()), &rules(), at(second))
            .unwrap();
        assert_eq!((task.state, task.due), (State::Pending, Some(at(second + 5).now)));
        assert!(task.clone().claim("w", &rules(), at(second + 4)).is_none(), "not before its time");
    }
    task = task.claim("w", &rules(), at(20)).unwrap();
    let failed = task.finish(3, RunOutcome::Failed("still no".to_owned()), &rules(), at(21)).unwrap();
    assert_eq!((failed.state, failed.due, failed.error.as_deref()), (State::Failed, None, Some("still no")));
    assert_eq!(failed.history.len(), 3);
    assert_eq!(observe(Some(failed.clone()), inside(1), &rules(), 22), None, "it stays failed");
    let changed = observe(Some(failed.clone()), inside(2), &rules(), 22).unwrap();
    assert_eq!((changed.state, changed.attempts), (State::Pending, 0));
    let kept = Rules { retry: rules().retry.reset_on_change(false), ..rules() };
    let changed = observe(Some(failed.clone()), inside(2), &kept, 22).unwrap();
    assert_eq!((changed.state, changed.attempts), (State::Pending, 3));
    let retried = failed.clone().retry(at(30));
    assert_eq!((retried.state, retried.due, retried.attempts), (State::Pending, Some(at(30).now), 0));
    assert_eq!(retried.idempotency_key(), failed.idempotency_key(), "it is the same effect");
}

/// Returns the task after its worker died during a run that began at this second.
fn dies(task: Task, second: i64) -> Task {
    let claimed = task.claim("w", &rules(), at(second)).unwrap();
    claimed.reap(Loser::Dead, &rules(), at(second + 60)).unwrap()
}

#[test]
fn a_document_that_kills_its_processes_fails_after_it_killed_them_alone() {
    let mut task = pending();
    for (second, suspicion) in [(0, Suspicion::Many), (100, Suspicion::Few), (200, Suspicion::Alone)] {
        task = dies(task, second);
        assert_eq!((task.state, task.attempts, task.suspicion), (State::Pending, 0, suspicion));
        assert_eq!((task.due, task.owner.as_deref()), (Some(at(second + 60).now), None));
    }
    for (second, attempts) in [(300, 1), (400, 2)] {
        task = dies(task, second);
        assert_eq!((task.state, task.attempts), (State::Pending, attempts));
    }
    let failed = dies(task, 500);
    assert_eq!((failed.state, failed.due, failed.owner.as_deref()), (State::Failed, None, None));
    assert!(failed.error.as_ref().unwrap().contains("process ended"), "{:?}", failed.error);
    assert_eq!(failed.history.last().unwrap().outcome, Ended::Lost);
    assert_eq!(failed.retry(at(600)).suspicion, Suspicion::Alone, "it is as dangerous as it was");
}

#[test]
fn a_run_that_ends_clears_its_task_of_suspicion() {
    let suspect = dies(dies(pending(), 0), 100);
    for outcome in [RunOutcome::Done, RunOutcome::Stale, RunOutcome::Failed("no".to_owned())] {
        let claimed = suspect.clone().claim("w", &rules(), at(200)).unwrap();
        let epoch = claimed.epoch;
        let ended = claimed.finish(epoch, outcome, &rules(), at(201)).unwrap();
        assert_eq!(ended.suspicion, Suspicion::None);
    }
    let claimed = suspect.claim("w", &rules(), at(200)).unwrap();
    let epoch = claimed.epoch;
    let back = claimed.give_back(epoch, at(201)).unwrap();
    assert_eq!(back.suspicion, Suspicion::Few, "nobody has run it");
}

#[test]
fn a_living_worker_that_loses_its_claim_raises_no_suspicion_and_counts_at_the_fourth_time() {
    let mut task = pending();
    for (second, attempts) in [(0, 0), (100, 0), (200, 0), (300, 1), (400, 2)] {
        let claimed = task.claim("w", &rules(), at(second)).unwrap();
        task = claimed.reap(Loser::Alive, &rules(), at(second + 60)).unwrap();
        let is = (task.state, task.attempts, task.suspicion);
        assert_eq!(is, (State::Pending, attempts, Suspicion::None));
    }
    let claimed = task.claim("w", &rules(), at(500)).unwrap();
    assert_eq!(claimed.reap(Loser::Alive, &rules(), at(560)).unwrap().state, State::Failed);
}

#[test]
fn a_worker_that_was_taken_for_dead_lifts_the_suspicion_that_it_raised() {
    let claimed = running();
    let suspect = claimed.clone().reap(Loser::Dead, &rules(), at(61)).unwrap();
    let cleared = suspect.clone().acquit(claimed.epoch, at(62)).unwrap();
    assert_eq!((cleared.state, cleared.suspicion), (State::Pending, Suspicion::None));
    assert_eq!(cleared.clone().acquit(claimed.epoch, at(63)), None, "once");
    let elsewhere = suspect.clone().claim("x", &rules(), at(62)).unwrap();
    let cleared = elsewhere.acquit(claimed.epoch, at(63)).unwrap();
    assert_eq!((cleared.state, cleared.suspicion), (State::Running, Suspicion::None));
    let again = dies(suspect, 62);
    assert_eq!(again.suspicion, Suspicion::Few);
    assert_eq!(again.acquit(claimed.epoch, at(130)), None, "another worker has died since then");

    let mut alone = pending();
    for second in [0, 100, 200, 300, 400] {
        alone = dies(alone, second);
    }
    let claimed = alone.claim("w", &rules(), at(500)).unwrap();
    let failed = claimed.clone().reap(Loser::Dead, &rules(), at(560)).unwrap();
    assert_eq!(failed.state, State::Failed);
    let back = failed.acquit(claimed.epoch, at(561)).unwrap();
    assert_eq!((back.state, back.attempts, back.due), (State::Pending, 2, Some(at(561).now)));
}

#[test]
fn a_suspect_that_others_run_beside_is_no_longer_alone() {
    let mut task = pending();
    for second in [0, 100, 200] {
        task = dies(task, second);
    }
    let claimed = task.claim("w", &rules(), at(300)).unwrap();
    let epoch = claimed.epoch;
    let paroled = claimed.parole(epoch, at(330)).unwrap();
    assert_eq!(paroled.suspicion, Suspicion::Few);
    let lost = paroled.reap(Loser::Dead, &rules(), at(400)).unwrap();
    assert_eq!((lost.state, lost.attempts, lost.suspicion), (State::Pending, 0, Suspicion::Alone));
}

#[test]
fn a_claim_that_was_taken_over_is_void() {
    let first = running();
    assert!(first.clone().claim("x", &rules(), at(2)).is_none());
    assert!(first.clone().claim("x", &rules(), at(61)).is_none(), "it is reaped first");
    assert!(first.clone().reap(Loser::Dead, &rules(), at(60)).is_none(), "not before it has ended");
    let reaped = first.reap(Loser::Dead, &rules(), at(61)).unwrap();
    assert!(reaped.clone().finish(1, RunOutcome::Done, &rules(), at(62)).is_none());
    assert!(reaped.clone().renew_claim(1, &rules(), at(62)).is_none());
    let second = reaped.claim("x", &rules(), at(61)).unwrap();
    assert_eq!(second.epoch, 3);
    assert!(second.clone().finish(1, RunOutcome::Done, &rules(), at(62)).is_none());
    assert!(second.clone().renew_claim(1, &rules(), at(62)).is_none());
    assert!(second.clone().give_back(1, at(62)).is_none());
    let renewed = second.renew_claim(3, &rules(), at(100)).unwrap();
    assert_eq!(renewed.due, Some(at(160).now));
    let done = renewed.finish(3, RunOutcome::Done, &rules(), at(101)).unwrap();
    assert!(done.clone().finish(3, RunOutcome::Done, &rules(), at(102)).is_none(), "once");
    assert_eq!((done.state, done.done_at), (State::Done, Some(at(101).now)));
}

#[test]
fn what_is_deferred_or_given_back_does_not_count() {
    let until = at(50).now;
    let deferred = running().finish(1, RunOutcome::Deferred(until), &rules(), at(2)).unwrap();
    assert_eq!((deferred.state, deferred.attempts, deferred.due), (State::Pending, 0, Some(until)));
    let back = running().give_back(1, at(2)).unwrap();
    assert_eq!((back.state, back.attempts, back.due), (State::Pending, 0, Some(at(2).now)));
}

#[test]
fn old_code_does_not_run_what_needs_new_code() {
    let done = running().finish(1, RunOutcome::Done, &rules(), at(2)).unwrap();
    let failed = Task { state: State::Failed, ..done.clone() };
    let new = Rules { version: 2, ..rules() };
    assert_eq!(done.clone().evolve(&new, Evolution::Nothing, at(3)), None);
    assert_eq!(done.clone().evolve(&new, Evolution::FailedAgain, at(3)), None);
    for (task, evolution) in [(failed, Evolution::FailedAgain), (done, Evolution::AllAgain)] {
        let again = task.evolve(&new, evolution, at(3)).unwrap();
        assert_eq!((again.state, again.needs), (State::Pending, 2));
        assert!(again.clone().claim("old", &rules(), at(4)).is_none());
        assert!(again.clone().claim("new", &new, at(4)).is_some());
        assert_eq!(again.evolve(&new, evolution, at(5)), None, "once");
    }
}

/// Regression test: a late write of a look hid the document for good. Its version check passed,
/// because the document was back unchanged and so nobody had changed the task.
#[test]
fn a_document_that_left_is_looked_at_once_more() {
    let before = pending();
    let late = observe(Some(before.clone()), Observation::Absent, &rules(), 3).unwrap();
    assert_eq!(observe(Some(before), inside(1), &rules(), 4), None, "it is back, and nothing has changed");
    // Now the late look is written: the document must be observed again.
    assert_eq!((late.state, late.check_at), (State::Stale, Some(at(3).now)));
    let back = observe(Some(late.clone()), inside(1), &rules(), 5).unwrap();
    assert_eq!((back.state, back.check_at), (State::Pending, None));
    let gone = observe(Some(late), Observation::Absent, &rules(), 5).unwrap();
    assert_eq!((gone.state, gone.check_at), (State::Stale, None));
    assert_eq!(
        observe(Some(gone), Observation::Absent, &rules(), 6),
        None,
        "once more, and not again and again"
    );
}

/// Regression test: a look from before the change was written after it, and nobody looked again.
#[test]
fn who_is_told_twice_to_look_does_not_write_what_was_seen_in_between() {
    let noted = Task::look_again(Some(pending()), &key(), at(3));
    let seen = observe(Some(noted.clone()), Observation::Outside, &rules(), 4).unwrap();
    let again = Task::look_again(Some(noted.clone()), &key(), at(5));
    assert_eq!(again.check_at, Some(at(3).now));
    assert_ne!(
        again.version, noted.version,
        "{seen:?} is refused, as it was computed from {}",
        noted.version
    );
}

#[test]
fn new_code_tries_again_what_failed_and_does_once_more_what_was_done() {
    let new = Rules { version: 2, ..rules() };
    let done = running().finish(1, RunOutcome::Done, &rules(), at(2)).unwrap();
    let failed = Task { state: State::Failed, ..done.clone() };
    let again = |task: &Task| task.clone().evolve(&new, Evolution::AllAgain, at(3)).unwrap();
    assert_eq!(again(&failed).idempotency_key(), failed.idempotency_key(), "it is the same effect");
    assert_ne!(again(&done).idempotency_key(), done.idempotency_key());
    // Attempts are counted from zero, also if the task is running.
    for task in [again(&running()), running().retry(at(3))] {
        assert_eq!((task.state, task.attempts), (State::Changed, 0));
    }
}

#[test]
fn a_task_that_was_forgotten_has_other_numbers_when_it_is_there_again() {
    let (first, then) = (running(), observe(None, inside(1), &rules(), 9).unwrap());
    assert_ne!(then.idempotency_key(), first.idempotency_key());
    let then = then.claim("w", &rules(), at(9)).unwrap();
    assert!(then.epoch > first.epoch && !then.is_claimed(first.epoch));
}

#[test]
fn what_is_done_every_day_goes_on_whatever_happens() {
    let every = Every::interval(Duration::from_secs(100)).unwrap();
    let rules = Rules { every: Some(every.clone()), retry: Retry::never(), ..rules() };
    let task = Task::schedule(None, &key(), &every, &rules, at(0)).unwrap();
    assert_eq!((task.state, task.due), (State::Pending, Some(at(100).now)));
    assert!(task.clone().claim("w", &rules, at(99)).is_none());
    let claimed = task.claim("w", &rules, at(100)).unwrap();
    assert_eq!(Task::schedule(Some(claimed.clone()), &key(), &every, &rules, at(101)), None);
    for outcome in [RunOutcome::Done, RunOutcome::Stale, RunOutcome::Failed("no".to_owned())] {
        let next = claimed.clone().finish(1, outcome, &rules, at(110)).unwrap();
        assert_eq!((next.state, next.due, next.attempts), (State::Pending, Some(at(210).now), 0));
        assert_ne!(next.idempotency_key(), claimed.idempotency_key());
        assert_eq!(next.clone().retry(at(120)).due, Some(at(120).now), "by hand at once");
    }
    let lost = claimed.clone().reap(Loser::Dead, &rules, at(300)).unwrap();
    assert_eq!((lost.state, lost.due), (State::Pending, Some(at(300).now)), "others may be to blame");
    let alone = Task { suspicion: Suspicion::Alone, ..claimed };
    let given_up = alone.reap(Loser::Dead, &rules, at(300)).unwrap();
    assert_eq!((given_up.state, given_up.due), (State::Pending, Some(at(400).now)));
}

#[test]
fn events_of_a_stream_are_handled_one_after_the_other() {
    let seen =
        |task, first, last, second| Task::observe_events(task, &key(), (first, last), &rules(), at(second));
    let task = seen(None, 3, 5, 0).unwrap();
    assert_eq!((task.state, task.cursor), (State::Pending, Some(StreamProgress { handled: 2, last: 5 })));
    assert_eq!(seen(Some(task.clone()), 3, 5, 1), None, "found again");
    let running = task.claim("w", &rules(), at(1)).unwrap();
    let more = seen(Some(running), 7, 7, 2).unwrap();
    assert_eq!((more.state, more.cursor), (State::Running, Some(StreamProgress { handled: 2, last: 7 })));
    let next = more.finish(1, RunOutcome::Handled(3), &rules(), at(3)).unwrap();
    assert_eq!((next.state, next.due, next.attempts), (State::Pending, Some(at(3).now), 0));
    let last =
        next.claim("w", &rules(), at(4)).unwrap().finish(2, RunOutcome::Handled(7), &rules(), at(5)).unwrap();
    assert_eq!((last.state, last.cursor), (State::Done, Some(StreamProgress { handled: 7, last: 7 })));
    let again = seen(Some(last), 9, 9, 6).unwrap();
    assert_eq!(again.state, State::Pending);
    let failed = Task { state: State::Failed, due: None, ..again };
    let held_up = seen(Some(failed), 12, 12, 7).unwrap();
    assert_eq!(
        (held_up.state, held_up.cursor),
        (State::Failed, Some(StreamProgress { handled: 7, last: 12 }))
    );
}

#[test]
fn what_may_match_later_is_remembered_until_then() {
    let check_at = Some(at(100).now);
    let waiting = Task::observe(None, &key(), Observation::Outside, check_at, &rules(), at(0)).unwrap();
    assert_eq!((waiting.state, waiting.check_at, waiting.inside), (State::Stale, check_at, false));
    let entered = Task::observe(Some(waiting), &key(), inside(1), None, &rules(), at(100)).unwrap();
    assert_eq!((entered.state, entered.check_at), (State::Pending, None));
}

#[derive(Clone, Debug)]
enum Act {
    /// Writes the document: a value and whether it matches, or nothing.
    Write(Option<(u32, bool)>),
    Look,
    Claim,
    /// The handler reads the document.
    Read,
    Finish(bool),
    /// The process of the claim dies.
    Die,
    Pass(u32),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => prop::option::weighted(0.85, (0..3_u32, prop::bool::weighted(0.75))).prop_map(Act::Write),
        3 => Just(Act::Look),
        3 => Just(Act::Claim),
        3 => Just(Act::Read),
        3 => any::<bool>().prop_map(Act::Finish),
        1 => Just(Act::Die),
        2 => (1..80_u32).prop_map(Act::Pass),
    ];
    prop::collection::vec(act, 0..60)
}

/// A world of one document, one task, and one runner.
#[derive(Default)]
struct World {
    document: Option<(u32, bool)>,
    /// The number of writes of the document; below, the state that a handler last succeeded with.
    writes: u32,
    handled: Option<(u32, u32)>,
    task: Option<Task>,
    claim: Option<(u64, Option<Json>, Option<u32>)>,
    second: i64,
}

impl World {
    fn rules() -> Rules {
        Rules { retry: Retry::fixed(Duration::from_secs(1)).jitter(0.0), ..rules() }
    }

    fn seen(&self) -> Observation {
        match self.document {
            None => Observation::Absent,
            Some((_, false)) => Observation::Outside,
            Some((value, true)) => inside(value),
        }
    }

    fn look(&mut self) {
        self.second += 1;
        let seen = self.seen();
        if let Some(task) = observe(self.task.clone(), seen, &Self::rules(), self.second) {
            self.task = Some(task);
        }
    }

    fn act(&mut self, act: &Act) {
        self.second += 1;
        match act {
            Act::Write(document) => {
                self.document = *document;
                self.writes += 1;
            }
            Act::Look => self.look(),
            Act::Claim => {
                // A lost claim is reaped first. Every other loser is alive.
                let loser = if self.second % 2 == 0 { Loser::Dead } else { Loser::Alive };
                let moment = at(self.second);
                let reap = |task: Task| task.reap(loser, &Self::rules(), moment);
                self.task = self.task.clone().and_then(reap).or(self.task.take());
                let claimed = self.task.clone().and_then(|task| task.claim("w", &Self::rules(), moment));
                if let Some(claimed) = claimed {
                    self.claim = Some((claimed.epoch, Some(claimed.watched.clone()), None));
                    self.task = Some(claimed);
                }
            }
            Act::Read => {
                let (seen, writes) = (self.seen(), self.writes);
                let Some((_, watched, read)) = &mut self.claim else { return };
                match (&seen, watched) {
                    (Observation::Inside(now), Some(planned)) if now == planned => *read = Some(writes),
                    // The run ends as stale, whatever the handler does.
                    (_, planned) => *planned = None,
                }
            }
            Act::Finish(succeeds) => {
                let Some((epoch, planned, read)) = self.claim.take() else { return };
                let outcome = match (planned, read) {
                    (None, _) => RunOutcome::Stale,
                    (_, None) => RunOutcome::Deferred(at(self.second).now),
                    (Some(_), Some(_)) if !succeeds => RunOutcome::Failed("no".to_owned()),
                    (Some(planned), Some(read)) => {
                        self.handled = Some((planned.to().unwrap(), read));
                        RunOutcome::Done
                    }
                };
                let task = self
                    .task
                    .clone()
                    .and_then(|task| task.finish(epoch, outcome, &Self::rules(), at(self.second)));
                self.task = task.or(self.task.take());
            }
            Act::Die => self.claim = None,
            Act::Pass(seconds) => self.second += i64::from(*seconds),
        }
    }
}

proptest! {
    /// Promise 7: if a document no longer changes, and was observed after its last change, its last
    /// state is handled.
    #[test]
    fn the_last_state_is_handled(acts in acts()) {
        let mut world = World::default();
        for act in &acts {
            world.act(act);
        }
        world.claim = None;
        world.look();
        for _ in 0..20 {
            if world.task.as_ref().is_some_and(|task| task.check_at.is_some()) {
                world.look();
            }
            for act in [Act::Pass(100), Act::Claim, Act::Read, Act::Finish(true)] {
                world.act(&act);
            }
        }
        let task = world.task.as_ref();
        prop_assert!(task.is_none_or(|task| !matches!(task.state, State::Pending | State::Running | State::Changed)));
        if let Some((value, true)) = world.document {
            prop_assert_eq!(task.map(|task| task.state), Some(State::Done));
            prop_assert_eq!(world.handled.map(|(handled, _)| handled), Some(value));
        }
    }

    /// A task's numbers only grow, and an ended task stays ended until something happens.
    #[test]
    fn epochs_and_generations_only_grow(acts in acts()) {
        let mut world = World::default();
        let mut before = (0, 0);
        for act in &acts {
            world.act(act);
            if let Some(task) = &world.task {
                let now = (task.epoch, task.generation);
                prop_assert!(now.0 >= before.0 && now.1 >= before.1);
                prop_assert!(task.history.len() <= 3);
                let has_due = matches!(task.state, State::Pending | State::Running);
                prop_assert!(!has_due || task.due.is_some(), "{task:?}");
                before = now;
            }
        }
    }
}

#[test]
fn a_document_that_can_not_be_read_fails_and_is_handled_when_it_can() {
    let unreadable = |why: &str| Observation::Unreadable(why.to_owned());
    let handled = running().finish(1, RunOutcome::Done, &rules(), at(2)).unwrap();
    for before in [None, Some(pending()), Some(handled)] {
        let failed = observe(before, unreadable("no UTF-8"), &rules(), 3).unwrap();
        assert_eq!((failed.state, failed.due, failed.inside), (State::Failed, None, false));
        assert_eq!(failed.error.as_deref(), Some("the document can't be read: no UTF-8"));
        assert_eq!(
            observe(Some(failed.clone()), unreadable("no UTF-8"), &rules(), 4),
            None,
            "nothing has changed"
        );
        let mended = observe(Some(failed.clone()), inside(1), &rules(), 5).unwrap();
        assert_eq!((mended.state, mended.due), (State::Pending, Some(at(5).now)));
        for seen in [Observation::Absent, Observation::Outside] {
            let over = observe(Some(failed.clone()), seen, &rules(), 5).unwrap();
            assert_eq!(over.state, State::Stale, "there is nothing to mend any more");
        }
    }
    // A task that is retried by hand and deferred is observed once more.
    let failed = observe(None, unreadable("no UTF-8"), &rules(), 3).unwrap();
    let again = failed.retry(at(4)).claim("w", &rules(), at(4)).unwrap();
    let epoch = again.epoch;
    let deferred = again.finish(epoch, RunOutcome::Deferred(at(9).now), &rules(), at(5)).unwrap();
    assert_eq!((deferred.state, deferred.check_at), (State::Stale, Some(at(5).now)));
    // A run reports its outcome first.
    let during = observe(Some(running()), unreadable("no UTF-8"), &rules(), 3).unwrap();
    assert_eq!((during.state, during.check_at), (State::Running, Some(later(at(3).now, rules().visibility))));
    let ended = during.finish(1, RunOutcome::Failed("no".to_owned()), &rules(), at(4)).unwrap();
    assert_eq!(observe(Some(ended), unreadable("no UTF-8"), &rules(), 70).unwrap().state, State::Failed);
}

#[test]
fn a_task_stays_small_whatever_is_watched_and_said() {
    let large = |last: char| Json::of(&format!("{}{last}", "x".repeat(1 << 20))).unwrap();
    let (one, other) = (kept(large('1')), kept(large('2')));
    assert!(is_hash(&one) && one != other && one == kept(large('1')) && one.as_str().len() < 200, "{one:?}");
    assert_eq!(kept(one.clone()), one);
    let small = Json::of(&"x".repeat(16_000)).unwrap();
    assert_eq!(kept(small.clone()), small);
    // A task that was planned before large values were hashed is not planned again for the same
    // document.
    let old = Task { watched: large('1'), ..pending() };
    assert_eq!(observe(Some(old.clone()), Observation::Inside(one), &rules(), 5), None);
    assert!(observe(Some(old), Observation::Inside(other), &rules(), 5).is_some());

    let said = format!("begin{}end", "ü".repeat(1 << 20));
    let rules = Rules { history: 1_000, retry: Retry::fixed(Duration::ZERO).attempts(u32::MAX), ..rules() };
    let mut task = pending();
    for second in 1..200 {
        task = task.claim("w", &rules, at(second)).unwrap();
        let epoch = task.epoch;
        task = task.finish(epoch, RunOutcome::Failed(said.clone()), &rules, at(second)).unwrap();
    }
    let error = task.error.clone().unwrap();
    assert!(error.starts_with("beginü") && error.ends_with("üend"), "{error}");
    assert!(error.len() < 8_300 && error.contains("bytes are left out"), "{}", error.len());
    assert!((20..100).contains(&task.history.len()), "{}", task.history.len());
    assert!(serde_json::to_string(&task).unwrap().len() < 512 << 10);
}
