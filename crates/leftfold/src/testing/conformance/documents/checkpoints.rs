//! Checkpoints, and waits for them.

use super::fixtures::{applied, cart, commit, conflict, insert, load, mark, record, step, update};
use crate::documents::{Advance, Checkpoint, Collection, Tally};
use crate::event::Partition;
use crate::mark::{Lane, Mark};
use crate::store::Store;
use crate::testing::conformance::{Atomic, soon, waits};

/// A commit whose checkpoint is elsewhere does not move it, and an atomic commit writes nothing.
pub async fn a_checkpoint_moves_only_from_where_it_is<S: Store>(store: S, atomic: Atomic) {
    store.prepare(&cart()).await.unwrap();
    assert!(conflict(commit(&store, Some(step(1, 2)), vec![]).await).checkpoint, "it never ran");
    applied(&commit(&store, Some(step(0, 1)), vec![insert(record("a", 1, "1"))]).await);
    applied(&commit(&store, Some(step(1, 2)), vec![update(1, record("a", 2, "2"))]).await);
    for (from, to) in [(0, 3), (1, 3), (3, 4)] {
        let name = format!("new{from}");
        let outcome = commit(&store, Some(step(from, to)), vec![insert(record(&name, 3, "3"))]).await;
        assert!(conflict(outcome).checkpoint, "from {from}");
        assert_eq!(store.checkpoint(&cart()).await.unwrap(), step(1, 2).to);
        let written = load(&store, &[&name]).await;
        assert!(atomic == Atomic::No || written.is_empty(), "nothing is written: {written:?}");
    }
    assert_eq!(load(&store, &["a"]).await, [record("a", 2, "2")]);
    let elsewhere = Advance { projection: Collection::new("other").unwrap(), ..step(0, 9) };
    applied(&commit(&store, Some(elsewhere), vec![]).await);
    assert_eq!(store.checkpoint(&cart()).await.unwrap(), step(1, 2).to, "each projection has its own");
}

/// Marks of many lanes and full tallies come back unchanged.
pub async fn checkpoints_come_back_exactly<S: Store>(store: S) {
    store.prepare(&cart()).await.unwrap();
    let lanes = (0..50).map(|number| (Lane::from(Partition(number)), u64::from(number) * 1_000));
    let last_error = Some("it's \"bad\"\n🦀".to_owned());
    let tally = Tally {
        events: u64::MAX,
        applied: 2,
        skipped: 3,
        ignored: 4,
        set_aside: 5,
        retried: 6,
        parked: 7,
        conflicts: 8,
        last_error,
    };
    let to = Checkpoint { mark: lanes.chain([(Lane::named("x\"y"), u64::MAX)]).collect(), tally };
    let advance = Advance { projection: cart(), from: Mark::default(), to: to.clone() };
    applied(&commit(&store, Some(advance), vec![]).await);
    assert_eq!(store.checkpoint(&cart()).await.unwrap(), to);
    let back = Advance { projection: cart(), from: to.mark, to: step(0, 3).to };
    applied(&commit(&store, Some(back.clone()), vec![]).await);
    assert_eq!(store.checkpoint(&cart()).await.unwrap(), back.to);
}

/// A wait ends when that projection's mark changes, and not before.
pub async fn waiting_for_a_checkpoint_ends_with_its_step<S: Store>(store: S) {
    store.prepare(&cart()).await.unwrap();
    assert!(waits(store.advanced(&cart(), &Mark::default())).await, "it never ran");
    soon(store.advanced(&cart(), &mark(3))).await.unwrap();
    let waiting = {
        let store = store.clone();
        tokio::spawn(async move { store.advanced(&cart(), &Mark::default()).await })
    };
    let elsewhere = Advance { projection: Collection::new("other").unwrap(), ..step(0, 9) };
    applied(&commit(&store, Some(elsewhere), vec![insert(record("a", 1, "1"))]).await);
    let _ = conflict(commit(&store, Some(step(3, 4)), vec![]).await);
    assert!(waits(store.advanced(&cart(), &Mark::default())).await, "only another projection has moved");
    assert!(!waiting.is_finished());
    applied(&commit(&store, Some(step(0, 1)), vec![]).await);
    soon(waiting).await.unwrap().unwrap();
    soon(store.advanced(&cart(), &Mark::default())).await.unwrap();
    assert!(waits(store.advanced(&cart(), &mark(1))).await);
}

/// A step at the moment when a wait starts is not missed, and neither is a step backwards.
pub async fn no_step_of_a_checkpoint_is_missed<S: Store>(store: S) {
    store.prepare(&cart()).await.unwrap();
    for round in 0..120 {
        let (from, to) = if round % 2 == 0 { (0, 5) } else { (5, 0) };
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { store.advanced(&cart(), &step(from, to).from).await })
            })
            .collect();
        if round % 3 == 0 {
            tokio::task::yield_now().await;
        }
        applied(&commit(&store, Some(step(from, to)), vec![]).await);
        for waiter in waiting {
            soon(waiter).await.unwrap().unwrap();
        }
    }
}
