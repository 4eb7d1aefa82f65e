//! Tasks run again: on a schedule, on request, or for new code.

use std::time::Duration;

use super::{at, key, rules, running};
use crate::react::define::{Every, Retry};
use crate::react::task::{Evolution, Loser, Rules, RunOutcome, State, Suspicion, Task};

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
