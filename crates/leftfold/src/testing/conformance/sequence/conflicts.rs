//! Events that conflict with stored ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::fixtures::{delivery, revisions, settlement, state_of, step, time, totals};
use crate::event::{EventId, Revision};
use crate::log::{Entry, Expected};
use crate::sequence::{
    Conflict, ConflictReason, Delivery, IngestAnswer, Policy, Resolution, Sequencer, Sequences, Settled,
    StreamChange,
};
use crate::store::Store;
use crate::testing::conformance::{entry, json, stream};

/// An event whose id is taken is not appended, and its sender gets a conflict.
pub async fn a_taken_id_is_a_conflict<S: Store + Sequences>(store: S) {
    store.append(stream("other"), Expected::Any, vec![entry("mine")]).await.unwrap();
    let mine = Arc::new(Entry { data: json("1"), ..entry("mine") });
    let taking = StreamChange { append: vec![(Revision(1), Arc::clone(&mine))], ..step("s", 0, None) };
    let settled = store.settle(settlement(&store, vec![taking])).await.unwrap();
    assert!(matches!(&settled, Settled::Taken(ids) if *ids == [mine.id.clone()]), "{settled:?}");
    let sequencer = Sequencer::new(store.clone());
    let why = ConflictReason::IdTaken { stream: stream("other"), revision: Revision(1) };
    let bad = Delivery { entry: mine, ..delivery("s", 1) };
    let answers = sequencer.ingest(Policy::Contiguous, vec![bad.clone(), delivery("t", 1)]).await.unwrap();
    assert_eq!(answers[0], IngestAnswer::Conflict(why.clone()));
    assert!(matches!(answers[1], IngestAnswer::Appended(_)), "other streams continue: {answers:?}");
    // If it was held first, the conflict is found on its release.
    sequencer
        .ingest(Policy::Contiguous, vec![Delivery { revision: Some(Revision(2)), ..bad }])
        .await
        .unwrap();
    sequencer.ingest(Policy::Contiguous, vec![delivery("s", 3), delivery("s", 1)]).await.unwrap();
    assert_eq!(revisions(&store, "s").await, [1]);
    let conflicts = store.conflicts(None, 10).await.unwrap();
    let places: Vec<_> =
        conflicts.iter().map(|conflict| (conflict.revision.0, conflict.why.clone())).collect();
    assert_eq!(places, [(1, why.clone()), (2, why)]);
    assert_eq!(state_of(&store, "s").await.waiting.unwrap().events, 1, "later events wait");
}

/// If several events with the same id come together, the first is accepted and the others are
/// conflicts.
pub async fn an_id_that_comes_with_several_events_is_taken_once<S: Store + Sequences>(store: S) {
    let sequencer = Sequencer::new(store.clone());
    let same =
        |name: &str, revision: u64| Delivery { entry: delivery("same", 1).entry, ..delivery(name, revision) };
    let names: Vec<_> = (0..8).map(|number| format!("t{number}")).collect();
    let fed =
        names.iter().map(|name| same(name, 1)).chain([delivery("u", 1), same("u", 2), delivery("u", 3)]);
    let answers = sequencer.ingest(Policy::Contiguous, fed.collect()).await.unwrap();
    let appended = answers[..8].iter().filter(|answer| matches!(answer, IngestAnswer::Appended(_))).count();
    let disputed = answers
        .iter()
        .filter(|answer| matches!(answer, IngestAnswer::Conflict(ConflictReason::IdTaken { .. })))
        .count();
    assert_eq!((appended, disputed), (1, 8), "{answers:?}");
    assert!(
        matches!(
            answers[8..],
            [IngestAnswer::Appended(_), IngestAnswer::Conflict(_), IngestAnswer::Held { .. }]
        ),
        "{answers:?}"
    );
    // The same in one stream, with held events.
    let twice = vec![same("v", 2), same("v", 3), delivery("v", 1)];
    let twice = twice.into_iter().map(|delivery| Delivery {
        entry: Arc::new(Entry { id: EventId::new("twice").unwrap(), ..(*delivery.entry).clone() }),
        ..delivery
    });
    let twice: Vec<_> = twice.collect();
    sequencer.ingest(Policy::Contiguous, twice[..2].to_vec()).await.unwrap();
    sequencer.ingest(Policy::Contiguous, vec![delivery("v", 1)]).await.unwrap();
    assert_eq!(revisions(&store, "v").await, [1, 2]);
    assert_eq!(totals(&store).await.conflicts, 9);
}

/// Conflicts are kept once, listed, and resolved.
pub async fn conflicts_are_kept_until_they_are_resolved<S: Store + Sequences>(store: S) {
    let sequencer = Sequencer::new(store.clone());
    let other = |id: &str| Delivery { entry: Arc::new(entry(id)), ..delivery("s", 1) };
    let fed =
        vec![delivery("s", 1), other("x"), other("y"), Delivery { stream: stream("a"), ..delivery("s", 1) }];
    sequencer.ingest(Policy::Contiguous, vec![delivery("a", 1)]).await.unwrap();
    let fed = fed.into_iter().chain([Delivery { entry: Arc::new(entry("z")), ..delivery("a", 1) }]);
    let answers = sequencer.ingest(Policy::Contiguous, fed.collect()).await.unwrap();
    assert_eq!(answers[1], IngestAnswer::Conflict(ConflictReason::Logged));
    assert!(matches!(answers[3], IngestAnswer::Conflict(_)), "its id is in two streams: {answers:?}");
    sequencer.ingest(Policy::Contiguous, vec![other("x")]).await.unwrap();
    let conflicts = store.conflicts(None, 10).await.unwrap();
    assert_eq!(conflicts.len(), 4, "the same again is the same conflict");
    assert_eq!(totals(&store).await.conflicts, 4);
    let mut paged: Vec<Conflict> = Vec::new();
    while let Some(next) = store.conflicts(paged.last().cloned(), 1).await.unwrap().pop() {
        paged.push(next);
    }
    assert_eq!(paged, conflicts);
    let x = conflicts.iter().find(|conflict| conflict.entry.id.as_str() == "x").unwrap();
    assert_eq!(x.entry, other("x").entry);
    let decided = Resolution { reason: "sent by a test machine".to_owned(), at: time(9) };
    assert!(store.resolve(x, Some(decided.clone())).await.unwrap());
    assert!(!store.resolve(x, Some(decided)).await.unwrap(), "it is decided already");
    let y = conflicts.iter().find(|conflict| conflict.entry.id.as_str() == "y").unwrap();
    assert!(store.resolve(y, None).await.unwrap());
    assert!(!store.resolve(y, None).await.unwrap());
    assert_eq!(totals(&store).await.conflicts, 2);
    let again = sequencer.ingest(Policy::Contiguous, vec![other("x"), other("y")]).await.unwrap();
    assert_eq!(
        again,
        [IngestAnswer::Conflict(ConflictReason::Logged), IngestAnswer::Conflict(ConflictReason::Logged)]
    );
    let left = store.conflicts(None, 10).await.unwrap();
    let ids: BTreeSet<_> = left.iter().map(|conflict| conflict.entry.id.as_str()).collect();
    assert!(!ids.contains("x") && ids.contains("y"), "a decided conflict is not listed again: {ids:?}");
}
