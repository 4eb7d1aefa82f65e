//! A model check of claims, takeovers and guarded commits. It tries every order in which a few
//! workers, crashes, ended leases and lost responses can interleave.
//!
//! The decisions are the engine's own: `Claim::judge` decides who may begin, `Mark::judge` which
//! events are folded, `DocumentWrite::holds` and `Advance::holds` which writes happen. So the check
//! fails if one of these is wrong. It also shows why they are needed. If commits are guarded by the
//! lease's owner, or by an epoch that counts the owners, a single late commit corrupts data. Even
//! the owner's own late commit does.
//!
//! The worlds are small, because faults of this kind are: two or three workers, one or two
//! documents, two or three events. `cargo test -p leftfold-sim --test model -- --nocapture` prints
//! the number of states of each world, and the failing sequences.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod properties;
mod store;
mod worker;
mod world;

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use crate::properties::{IN_ORDER, NEVER_BACK, NONE_PASSED};
use crate::store::Guard;
use crate::world::Action::{self, Claim, Crash, End, Land, Load, Read, Renew, Repeat, Send, Write};
use crate::world::World;

/// Two workers with different names, and one stray commit.
const SMALL: World = World {
    guard: Guard::Position,
    transactions: true,
    workers: 2,
    events: 2,
    documents: 1,
    strays: 1,
    claims: 3,
    anonymous: false,
};

/// The same, without transactions.
const SMALL_PIECEMEAL: World = World { transactions: false, ..SMALL };

const ANN: usize = 0;
const BOB: usize = 1;

#[test]
fn two_workers_fold_each_event_once() {
    holds(World { events: 3, ..SMALL });
    holds(World { strays: 2, ..SMALL });
}

#[test]
fn two_workers_fold_each_event_once_without_transactions() {
    holds(World { events: 3, ..SMALL_PIECEMEAL });
    holds(World { strays: 2, ..SMALL_PIECEMEAL });
}

#[test]
fn two_workers_fold_each_event_once_into_two_documents_without_transactions() {
    holds(World { documents: 2, ..SMALL_PIECEMEAL });
}

#[test]
fn three_workers_fold_each_event_once() {
    holds(World { workers: 3, ..SMALL });
}

#[test]
fn three_workers_fold_each_event_once_without_transactions() {
    holds(World { workers: 3, ..SMALL_PIECEMEAL });
}

/// Ann's first commit is slow. She repeats it and continues, then the first one arrives. She holds
/// the lease and the epoch is hers, so the late commit looks valid.
#[test]
fn an_epoch_lets_a_delayed_twin_of_the_holders_own_write_through() {
    let world = World { guard: Guard::Epoch, ..SMALL };
    let begins = [Claim(ANN), Read(ANN), Load(ANN), Send(ANN, 1), Repeat(ANN), Write(ANN)];
    let goes_on = [Send(ANN, 2), Write(ANN)];
    let found = fails(world, NEVER_BACK, &[&begins[..], &goes_on, &[Land(0)]].concat());
    assert_twin(&found);
}

/// The same in a store without transactions: the document goes back, the checkpoint does not, and
/// the second event is lost for good.
#[test]
fn an_epoch_loses_events_to_a_delayed_twin_without_transactions() {
    let world = World { guard: Guard::Epoch, ..SMALL_PIECEMEAL };
    let begins = [Claim(ANN), Read(ANN), Load(ANN), Send(ANN, 1), Repeat(ANN), Write(ANN), Write(ANN)];
    let goes_on = [Send(ANN, 2), Write(ANN), Write(ANN)];
    let found = fails(world, NONE_PASSED, &[&begins[..], &goes_on, &[Land(0)]].concat());
    assert_twin(&found);
}

/// So an epoch fails only because of late commits.
#[test]
fn an_epoch_would_do_if_no_commit_ever_came_late() {
    holds(World { guard: Guard::Epoch, strays: 0, ..SMALL });
    holds(World { guard: Guard::Epoch, strays: 0, ..SMALL_PIECEMEAL });
}

/// Ann dies with a commit in flight and restarts under the same name. The commit arrives after she
/// has continued.
#[test]
fn an_owner_lets_a_late_write_of_its_former_life_through() {
    let world = World { guard: Guard::Owner, ..SMALL };
    let begins = [Claim(ANN), Read(ANN), Load(ANN), Send(ANN, 1), Crash(ANN)];
    let begins_anew = [Claim(ANN), Read(ANN), Load(ANN), Send(ANN, 2), Write(ANN)];
    fails(world, NEVER_BACK, &[&begins[..], &begins_anew, &[Land(0)]].concat());
}

/// Ann is paused. Bob works and is paused. Ann gets her lease again and continues with her old
/// state.
#[test]
fn an_owner_is_not_enough_even_if_no_commit_ever_comes_late() {
    let world = World { guard: Guard::Owner, strays: 0, ..SMALL };
    let sleeps = [Claim(ANN), Read(ANN), Load(ANN), End];
    let works = [Claim(BOB), Read(BOB), Load(BOB), Send(BOB, 2), Write(BOB), End];
    let wakes = [Renew(ANN), Send(ANN, 1), Write(ANN)];
    fails(world, NEVER_BACK, &[&sleeps[..], &works, &wakes].concat());
}

/// Bob loads the document, is paused while Ann works, then reads the checkpoint. He would fold the
/// second event into a document that lacks the first.
#[test]
fn the_checkpoints_guard_alone_is_not_enough() {
    let world = World { guard: Guard::CheckpointAlone, ..SMALL };
    let sleeps = [Claim(BOB), Load(BOB), End];
    let works = [Claim(ANN), Read(ANN), Load(ANN), Send(ANN, 1), Write(ANN)];
    let wakes = [Read(BOB), Send(BOB, 2), Write(BOB)];
    fails(world, IN_ORDER, &[&sleeps[..], &works, &wakes].concat());
}

/// Bob reads the checkpoint, is paused while Ann works, then loads the document. He has nothing to
/// add to it, and would move the checkpoint back.
#[test]
fn the_documents_guards_alone_are_not_enough() {
    let world = World { guard: Guard::DocumentsAlone, ..SMALL };
    let sleeps = [Claim(BOB), Read(BOB), End];
    let works = [Claim(ANN), Read(ANN), Load(ANN), Send(ANN, 2), Write(ANN)];
    let wakes = [Load(BOB), Send(BOB, 1), Write(BOB)];
    fails(world, NEVER_BACK, &[&sleeps[..], &works, &wakes].concat());
}

/// Tries every sequence and asserts that none fails.
#[track_caller]
fn holds(world: World) {
    // With this guard the writer of a commit does not matter, so workers are interchangeable.
    let world = World { anonymous: world.guard == Guard::Position, ..world };
    let begin = Instant::now();
    let checker = world.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    eprintln!(
        "{world}: {} states, {} steps between them, {:.1} s",
        checker.unique_state_count(),
        checker.state_count(),
        begin.elapsed().as_secs_f64()
    );
    checker.assert_properties();
}

/// Tries sequences until one violates the property, and asserts that `way` violates it too. Returns
/// the sequence found.
#[track_caller]
fn fails(world: World, property: &'static str, way: &[Action]) -> Vec<Action> {
    let enough = HasDiscoveries::AnyOf([property].into());
    let checker = world.checker().finish_when(enough).spawn_bfs().join();
    let found = checker.assert_any_discovery(property).into_actions();
    eprintln!("{world}: not so: {property}\n  found {found:?}\n  known {way:?}");
    checker.assert_discovery(property, way.to_vec());
    found
}

/// Asserts that a commit was repeated and that one of the two arrived late.
#[track_caller]
fn assert_twin(way: &[Action]) {
    let repeated = way.iter().position(|action| matches!(action, Repeat(_)));
    let landed = way.iter().position(|action| matches!(action, Land(_)));
    assert!(repeated.is_some() && repeated < landed, "no delayed twin: {way:?}");
}
