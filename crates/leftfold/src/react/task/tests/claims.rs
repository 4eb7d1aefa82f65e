//! Claims are taken, renewed, given back, and taken over.

use super::{at, inside, observe, rules, running};
use crate::react::task::{Loser, RunOutcome, State};

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
fn a_task_that_was_forgotten_has_other_numbers_when_it_is_there_again() {
    let (first, then) = (running(), observe(None, inside(1), &rules(), 9).unwrap());
    assert_ne!(then.idempotency_key(), first.idempotency_key());
    let then = then.claim("w", &rules(), at(9)).unwrap();
    assert!(then.epoch > first.epoch && !then.is_claimed(first.epoch));
}
