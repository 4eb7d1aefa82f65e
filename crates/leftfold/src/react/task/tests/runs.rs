//! Runs end, and documents change while they run.

use std::time::Duration;

use super::{at, inside, observe, pending, rules, running};
use crate::json::Json;
use crate::react::define::Retry;
use crate::react::task::{Observation, Rules, RunOutcome, State, Task, is_hash, kept};

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
