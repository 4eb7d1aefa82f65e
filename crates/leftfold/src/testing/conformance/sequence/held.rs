//! Held events, and their release.

use std::sync::Arc;
use std::time::Duration;

use super::fixtures::{ALL, delivery, nothing_is_held, revisions, state_of, totals};
use crate::event::{Partition, Revision};
use crate::log::{Expected, Limit};
use crate::sequence::{
    Delivery, HoldingLimits, IngestAnswer, NotLogged, Policy, Refusal, Sequencer, Sequences, StreamState,
    WantedEvents,
};
use crate::store::Store;
use crate::testing::conformance::{entry, json, soon, stream};

/// Held events are listed with the revision they wait for, and are read back unchanged.
pub async fn what_is_held_is_shown<S: Store + Sequences>(store: S) {
    let sequencer = Sequencer::new(store.clone());
    let mut odd = entry("odd");
    odd.metadata = Some(json(r#"{"by":"ann"}"#));
    odd.data = json("[1, \"\u{e4}\", null]");
    let odd = Delivery { entry: Arc::new(odd), ..delivery("a", 9) };
    let fed = vec![delivery("a", 1), delivery("a", 5), odd.clone(), delivery("b", 3), delivery("c", 1)];
    sequencer.ingest(Policy::Contiguous, fed).await.unwrap();
    let waiting = store.waiting(None, 10).await.unwrap();
    let names: Vec<_> = waiting.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let StreamState { last, waiting: Some(a) } = &waiting[0].1 else { panic!("{waiting:?}") };
    assert_eq!(
        (*last, a.events, a.first, a.until, a.highest),
        (Revision(1), 2, Revision(5), Revision(4), Revision(9))
    );
    assert_eq!(store.waiting(Some(stream("a")), 10).await.unwrap()[..], waiting[1..]);
    assert_eq!(store.waiting(None, 1).await.unwrap()[..], waiting[..1]);
    assert_eq!(totals(&store).await.events, 3);
    let mut pages = store.held(vec![stream("a"), stream("none")], ALL).await.unwrap();
    let page = pages.remove(&stream("a")).unwrap();
    assert!(!page.more && pages.remove(&stream("none")).unwrap().held.is_empty());
    assert_eq!((page.held[1].revision, page.held[1].previous), (Revision(9), Revision(8)));
    assert_eq!(page.held[1].entry, odd.entry);
    let found =
        store.find(WantedEvents { places: vec![(stream("a"), Revision(9))], ids: Vec::new() }).await.unwrap();
    assert_eq!((&found.held[..], found.logged.len()), (&page.held[1..], 0));
}

/// A page of held events ends at the limit, and has at least two events of each stream.
pub async fn held_events_are_read_in_pages<S: Store + Sequences>(store: S) {
    let sequencer = Sequencer::new(store.clone());
    let fed =
        (2..8).map(|revision| delivery("a", revision)).chain((2..6).map(|revision| delivery("b", revision)));
    sequencer.ingest(Policy::Contiguous, fed.collect()).await.unwrap();
    let limit = Limit { events: 4, bytes: usize::MAX };
    let pages = store.held(vec![stream("a"), stream("b")], limit).await.unwrap();
    let counts: Vec<_> = pages.values().map(|page| (page.held.len(), page.more)).collect();
    assert_eq!(counts, [(4, true), (2, true)]);
    let limit = Limit { events: usize::MAX, bytes: 1 };
    let pages = store.held(vec![stream("a")], limit).await.unwrap();
    assert_eq!(pages[&stream("a")].held.len(), 2);
}

/// A long run behind one gap is released, page by page.
pub async fn a_long_run_is_released<S: Store + Sequences>(store: S) {
    let sequencer = Sequencer::new(store.clone());
    for first in (2..5_002).step_by(1_000) {
        let batch = (first..first + 1_000).map(|revision| delivery("s", revision)).collect();
        sequencer.ingest(Policy::Contiguous, batch).await.unwrap();
    }
    assert_eq!(totals(&store).await.events, 5_000);
    let answers = sequencer.ingest(Policy::Contiguous, vec![delivery("s", 1)]).await.unwrap();
    assert!(matches!(answers[0], IngestAnswer::Appended(_)), "{answers:?}");
    assert_eq!(revisions(&store, "s").await, (1..=5_001).collect::<Vec<_>>());
    nothing_is_held(&store).await;
    assert_eq!(sequencer.counts().released, 5_000);
}

/// The sequencer sees events of other writers, and releases the events that waited for them.
pub async fn what_is_appended_beside_is_not_waited_for<S: Store + Sequences>(store: S) {
    let sequencer = Sequencer::new(store.clone());
    sequencer.ingest(Policy::Contiguous, vec![delivery("s", 2), delivery("s", 3)]).await.unwrap();
    store.append(stream("s"), Expected::NONE, vec![entry("s-1")]).await.unwrap();
    assert_eq!(sequencer.release(&stream("s")).await.unwrap(), 2);
    assert_eq!(revisions(&store, "s").await, [1, 2, 3]);
    store.append(stream("s"), Expected::Any, vec![entry("s-4"), entry("s-5")]).await.unwrap();
    let answers =
        sequencer.ingest(Policy::Contiguous, vec![delivery("s", 5), delivery("s", 6)]).await.unwrap();
    assert!(matches!(answers[..], [IngestAnswer::Duplicate(_), IngestAnswer::Appended(_)]), "{answers:?}");
    nothing_is_held(&store).await;
}

/// Deliveries beyond the bounds are refused, and nothing of them is kept.
pub async fn bounds_are_kept<S: Store + Sequences>(store: S) {
    let count = u64::from(store.partitions());
    let limits =
        HoldingLimits { events: 3 * count, stream_events: 2, conflicts: count, ..HoldingLimits::default() };
    let sequencer = || Sequencer::with(store.clone(), limits, Arc::new(crate::System));
    let fed = (2..6).map(|revision| delivery("s", revision)).collect();
    let answers = sequencer().ingest(Policy::Contiguous, fed).await.unwrap();
    assert_eq!(answers.iter().filter(|answer| answer.is_final()).count(), 2, "{answers:?}");
    assert!(
        matches!(&answers[3], IngestAnswer::Refused(Refusal::Full { bound, .. }) if bound.contains("of a stream"))
    );
    let partition = Partition::of(&stream("s"), store.partitions());
    let near = (0..).map(|number| format!("n{number}"));
    let near: Vec<_> =
        near.filter(|name| Partition::of(&stream(name), store.partitions()) == partition).take(4).collect();
    // Two sequencers that do not know of each other, so that only the store can enforce the bound.
    let (one, two) = (sequencer(), sequencer());
    for each in [&one, &two] {
        each.ingest(Policy::Contiguous, vec![delivery(&near[3], 1)]).await.unwrap();
    }
    let mut finals = 0;
    for (each, name) in [(&one, &near[0]), (&two, &near[1]), (&one, &near[2])] {
        let answers = each.ingest(Policy::Contiguous, vec![delivery(name, 2)]).await.unwrap();
        finals += usize::from(answers[0].is_final());
    }
    assert_eq!(finals, 1);
    assert_eq!(totals(&store).await.events, 3);
    // An event that closes a gap is always accepted, and makes room.
    one.ingest(Policy::Contiguous, vec![delivery("s", 1)]).await.unwrap();
    assert_eq!(revisions(&store, "s").await, [1, 2, 3]);
    assert_eq!(totals(&store).await.events, 1);
    let other = |id: &str| Delivery { entry: Arc::new(entry(id)), ..delivery("s", 1) };
    let answers = one.ingest(Policy::Contiguous, vec![other("x"), other("y")]).await.unwrap();
    assert_eq!(answers.iter().filter(|answer| answer.is_final()).count(), 1, "{answers:?}");
    // A held event that conflicts stays held, because there is no room for another conflict.
    one.ingest(Policy::Contiguous, vec![delivery("s", 5)]).await.unwrap();
    store.append(stream("s"), Expected::Any, vec![entry("other-4"), entry("other-5")]).await.unwrap();
    assert_eq!(soon(one.release(&stream("s"))).await.unwrap(), 0);
    assert_eq!(state_of(&store, "s").await.waiting.unwrap().events, 1);
    let answers = soon(one.ingest(Policy::Contiguous, vec![delivery("s", 6)])).await.unwrap();
    assert!(matches!(answers[..], [IngestAnswer::Appended(_)]), "the stream goes on: {answers:?}");
}

/// The sender of a held event gets its bookmark once it is in the log, or the reason why it is not.
pub async fn an_event_is_waited_for<S: Store + Sequences>(store: S) {
    let sequencer = Sequencer::new(store.clone());
    let policy = Policy::Contiguous;
    let (name, third) = (stream("a"), Revision(3));
    sequencer.ingest(policy, vec![delivery("a", 1), delivery("a", 3)]).await.unwrap();
    match sequencer.logged(&name, third, Duration::ZERO).await {
        Err(NotLogged::Held { stream, revision, waiting_for, .. }) => {
            assert_eq!((stream, revision, waiting_for), (name.clone(), third, Revision(2)));
        }
        other => panic!("{other:?}"),
    }
    let unknown = sequencer.logged(&name, Revision(2), Duration::ZERO).await;
    assert!(matches!(unknown, Err(NotLogged::Unknown { .. })), "{unknown:?}");
    let (waited, brought) = tokio::join!(
        soon(sequencer.logged(&name, third, Duration::from_mins(10))),
        sequencer.ingest(policy, vec![delivery("a", 2)])
    );
    brought.unwrap();
    let bookmark = waited.unwrap();
    let found = store.read_stream(&name, Revision(2), ALL).await.unwrap();
    assert_eq!(found[0].bookmark(), bookmark);
    assert_eq!(sequencer.logged(&name, third, Duration::ZERO).await.unwrap(), bookmark, "at once");
}
