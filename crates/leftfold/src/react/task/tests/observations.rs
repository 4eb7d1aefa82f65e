//! Documents and streams change, and tasks follow them.

use std::time::Duration;

use super::{BEGIN, at, inside, key, observe, pending, rules, running};
use crate::react::task::{Observation, Rules, RunOutcome, State, StreamProgress, Task};
use crate::react::time::later;

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
fn quiet_is_waited_for_but_not_for_ever() {
    let rules = Rules { debounce: Duration::from_secs(10), at_most: Duration::from_secs(25), ..rules() };
    let mut task = observe(None, inside(0), &rules, 0).unwrap();
    assert_eq!(task.due, Some(at(10).now));
    for (second, due) in [(8, 18), (16, 25), (24, 25), (30, 30)] {
        task = observe(Some(task), inside(u32::try_from(second).unwrap()), &rules, second).unwrap();
        assert_eq!(task.due, Some(at(due).now), "changed at {second}");
    }
}

#[test]
fn what_may_match_later_is_remembered_until_then() {
    let check_at = Some(at(100).now);
    let waiting = Task::observe(None, &key(), Observation::Outside, check_at, &rules(), at(0)).unwrap();
    assert_eq!((waiting.state, waiting.check_at, waiting.inside), (State::Stale, check_at, false));
    let entered = Task::observe(Some(waiting), &key(), inside(1), None, &rules(), at(100)).unwrap();
    assert_eq!((entered.state, entered.check_at), (State::Pending, None));
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
