//! Settlements: guarded and atomic.

use super::fixtures::{ALL, delivery, held, nothing_is_held, revisions, settlement, state_of, step, waiting};
use crate::event::{Partition, Revision};
use crate::sequence::{Sequences, Settled, StreamChange, StreamState};
use crate::store::Store;
use crate::testing::conformance::stream;

/// Nothing is written from an outdated view.
pub async fn a_step_is_guarded<S: Store + Sequences>(store: S) {
    let append = |last: u64, version| StreamChange {
        append: vec![(Revision(last + 1), delivery("s", last + 1).entry)],
        ..step("s", last, version)
    };
    let hold = |version, last, to: u64| {
        let held = held("s", to);
        StreamChange { waiting: Some(waiting(to, &held)), hold: vec![held], ..step("s", last, version) }
    };
    let moved = async |step: StreamChange| {
        let settled = store.settle(settlement(&store, vec![step])).await.unwrap();
        assert!(matches!(&settled, Settled::Moved(moved) if *moved == [stream("s")]), "{settled:?}");
    };
    let applied = async |step: StreamChange| {
        let settled = store.settle(settlement(&store, vec![step])).await.unwrap();
        assert!(matches!(&settled, Settled::Applied { .. }), "{settled:?}");
    };
    moved(append(1, None)).await;
    moved(append(0, Some(4))).await;
    moved(hold(None, 1, 7)).await;
    applied(append(0, None)).await;
    moved(append(0, None)).await;
    moved(hold(None, 0, 7)).await;
    applied(hold(None, 1, 7)).await;
    // A writer that did not see the held event would not release it.
    moved(append(1, None)).await;
    moved(hold(None, 1, 8)).await;
    moved(hold(Some(6), 1, 8)).await;
    let seven = held("s", 7);
    assert_eq!(
        state_of(&store, "s").await,
        StreamState { last: Revision(1), waiting: Some(waiting(7, &seven)) }
    );
    assert_eq!(revisions(&store, "s").await, [1]);
    applied(StreamChange { unhold: vec![Revision(7)], ..append(1, Some(7)) }).await;
    assert_eq!(state_of(&store, "s").await, StreamState { last: Revision(2), waiting: None });
    nothing_is_held(&store).await;
}

/// One step of many whose guard fails also rejects the others.
pub async fn a_settlement_is_one<S: Store + Sequences>(store: S) {
    let partition = Partition::of(&stream("s"), store.partitions());
    let mut names = (0..100).map(|number| format!("s{number}"));
    let other = names.find(|name| Partition::of(&stream(name), store.partitions()) == partition).unwrap();
    let first = |name: &str| StreamChange {
        append: vec![(Revision(1), delivery(name, 1).entry)],
        ..step(name, 0, None)
    };
    let late =
        StreamChange { append: vec![(Revision(2), delivery(&other, 2).entry)], ..step(&other, 1, None) };
    let settled = store.settle(settlement(&store, vec![first("s"), late])).await.unwrap();
    assert!(matches!(&settled, Settled::Moved(moved) if *moved == [stream(&other)]), "{settled:?}");
    assert_eq!(revisions(&store, "s").await, [0; 0]);
    let before = store.heads().await.unwrap().position(partition);
    let settled = store.settle(settlement(&store, vec![first("s"), first(&other)])).await.unwrap();
    assert!(matches!(settled, Settled::Applied { before: at } if at == before), "{settled:?}");
    let page = store.read(partition, before, ALL).await.unwrap();
    let ids: Vec<_> = page.events.iter().map(|event| event.stream.clone()).collect();
    assert_eq!(ids, [stream("s"), stream(&other)]);
}
