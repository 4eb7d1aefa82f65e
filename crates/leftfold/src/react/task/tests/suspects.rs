//! Lost claims raise suspicion, and suspicion is lifted.

use super::{at, pending, rules, running};
use crate::react::task::{Ended, Loser, RunOutcome, State, Suspicion, Task};

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
