//! Feeds: any order, several processes, other policies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::task::JoinSet;

use super::fixtures::{ALL, delivery, nothing_is_held, revisions, settlement, step};
use crate::event::{Event, EventId, Position, Revision, StreamId};
use crate::log::Entry;
use crate::sequence::{
    Delivery, IngestAnswer, Policy, Refusal, Sequencer, SequencerCounts, Sequences, Settled, Settlement,
};
use crate::store::Store;
use crate::testing::bad_json;
use crate::testing::conformance::{entry, json, soon, stream};

/// Creates a feed of many streams, with each event twice, in an order that depends on the seed.
fn feed(streams: u64, events: u64, seed: u64) -> Vec<Delivery> {
    let mut feed: Vec<_> = (0..streams)
        .flat_map(|name| (1..=events).map(move |revision| delivery(&format!("s{name}"), revision)))
        .flat_map(|delivery| [delivery.clone(), delivery])
        .collect();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for at in (1..feed.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let other = usize::try_from(state >> 33).unwrap() % (at + 1);
        feed.swap(at, other);
    }
    feed
}

/// The log ends up in order for any order of the feed, and every answer is true.
pub async fn a_shuffled_feed_ends_up_in_order<S: Store + Sequences>(store: S) {
    let sequencer = Sequencer::new(store.clone());
    let mut answered: BTreeMap<(StreamId, Revision), BTreeSet<String>> = BTreeMap::new();
    for batch in feed(5, 20, 1).chunks(13) {
        let answers = sequencer.ingest(Policy::Contiguous, batch.to_vec()).await.unwrap();
        assert_eq!(answers.len(), batch.len());
        for (delivery, answer) in batch.iter().zip(answers) {
            let said = match &answer {
                IngestAnswer::Appended(bookmark) | IngestAnswer::Duplicate(bookmark) => {
                    let found =
                        store.read(bookmark.partition, Position(bookmark.position.0 - 1), ALL).await.unwrap();
                    assert_eq!(found.events[0].id, delivery.entry.id, "{answer:?}");
                    assert_eq!(found.events[0].bookmark(), *bookmark);
                    if matches!(answer, IngestAnswer::Appended(_)) { "appended" } else { "duplicate" }
                }
                IngestAnswer::Held { waiting_for } => {
                    assert!(*waiting_for < delivery.revision.unwrap(), "{answer:?}");
                    "held"
                }
                other => panic!("{other:?}"),
            };
            let key = (delivery.stream.clone(), delivery.revision.unwrap());
            answered.entry(key).or_default().insert(said.to_owned());
        }
    }
    for name in 0..5 {
        assert_eq!(revisions(&store, &format!("s{name}")).await, (1..=20).collect::<Vec<_>>());
    }
    assert!(
        answered.values().any(|said| said.contains("held"))
            && answered.values().any(|said| said.contains("appended"))
    );
    nothing_is_held(&store).await;
    let counts = sequencer.counts();
    assert_eq!(counts.appended + counts.released, 100);
    assert_eq!(counts.appended + counts.duplicates + counts.held, 200);
}

/// Several processes that ingest the same feed lose nothing and leave nothing behind.
pub async fn many_may_ingest_the_same_streams<S: Store + Sequences>(store: S) {
    let mut tasks = JoinSet::new();
    for seed in 0..4 {
        let sequencer = Sequencer::new(store.clone());
        tasks.spawn(async move {
            for batch in feed(3, 15, seed).chunks(7) {
                // A sequencer that is always too late retries, as a broker would redeliver.
                loop {
                    match sequencer.ingest(Policy::Contiguous, batch.to_vec()).await {
                        Ok(_) => break,
                        Err(error) if error.is_transient() => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        });
    }
    soon(async {
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    })
    .await;
    for name in 0..3 {
        assert_eq!(revisions(&store, &format!("s{name}")).await, (1..=15).collect::<Vec<_>>());
    }
    nothing_is_held(&store).await;
}

/// Feeds whose revisions only grow, and feeds without revisions.
pub async fn other_policies_order_as_they_say<S: Store + Sequences>(store: S) {
    let sequencer = Sequencer::new(store.clone());
    let fed = vec![delivery("p", 500), delivery("p", 100)];
    sequencer.ingest(Policy::Latest, fed).await.unwrap();
    let answers =
        sequencer.ingest(Policy::Latest, vec![delivery("p", 300), delivery("p", 700)]).await.unwrap();
    assert!(
        matches!(answers[..], [IngestAnswer::Stale { last: Revision(500) }, IngestAnswer::Appended(_)]),
        "{answers:?}"
    );
    assert_eq!(revisions(&store, "p").await, [100, 500, 700]);
    let page = store.read_stream(&stream("p"), Revision(100), ALL).await.unwrap();
    assert_eq!(page.iter().map(|event: &Event| event.revision.0).collect::<Vec<_>>(), [500, 700]);
    let arriving = |id: &str| {
        let entry = Entry { id: EventId::new(id).unwrap(), ..entry(id) };
        Delivery { stream: stream("q"), revision: None, previous: None, entry: Arc::new(entry) }
    };
    sequencer.ingest(Policy::Arrival, vec![arriving("m"), arriving("n")]).await.unwrap();
    let answers = sequencer.ingest(Policy::Arrival, vec![arriving("n"), arriving("o")]).await.unwrap();
    let IngestAnswer::Duplicate(bookmark) = &answers[0] else { panic!("{answers:?}") };
    assert_eq!(bookmark.revision, Revision(2));
    assert!(
        matches!(&answers[1], IngestAnswer::Appended(bookmark) if bookmark.revision == Revision(3)),
        "{answers:?}"
    );
}

/// A delivery that is not strict JSON is refused by itself; others of the same batch are accepted.
pub async fn json_that_breaks_a_rule_is_not_ingested<S: Store + Sequences>(store: S) {
    let sequencer = Sequencer::new(store.clone());
    for (bad, number) in bad_json().into_iter().zip(1..) {
        let broken = Entry { data: json(&bad.text), ..entry("bad") };
        let broken = Delivery { entry: Arc::new(broken), ..delivery("bad", 1) };
        let early = Delivery { revision: Some(Revision(7)), ..broken.clone() };
        let bystander = delivery("bystander", number);
        let answers = sequencer.ingest(Policy::Contiguous, vec![broken, bystander, early]).await.unwrap();
        let [
            IngestAnswer::Refused(Refusal::Invalid(why)),
            IngestAnswer::Appended(_),
            IngestAnswer::Refused(Refusal::Invalid(_)),
        ] = &answers[..]
        else {
            panic!("{}: {answers:?}", bad.name)
        };
        assert!(bad.is_described_by(&why.to_string()), "{}: {why}", bad.name);
    }
    assert!(revisions(&store, "bad").await.is_empty());
    nothing_is_held(&store).await;
}

/// Counts of all sequencers are stored with their changes. Counts without a change are stored with
/// the next change.
pub async fn what_is_done_is_counted_once<S: Store + Sequences>(store: S) {
    let (first, second) = (Sequencer::new(store.clone()), Sequencer::new(store.clone()));
    let policy = Policy::Contiguous;
    first.ingest(policy, vec![delivery("a", 1), delivery("a", 1), delivery("a", 3)]).await.unwrap();
    second.ingest(policy, vec![delivery("a", 1), delivery("a", 3)]).await.unwrap();
    let counted = async || first.status().await.unwrap().counts;
    assert_eq!(
        counted().await,
        SequencerCounts { appended: 1, duplicates: 1, held: 1, ..SequencerCounts::default() }
    );
    assert_eq!(second.counts(), SequencerCounts { duplicates: 1, held: 1, ..SequencerCounts::default() });
    second.ingest(policy, vec![delivery("a", 2), delivery("b", 1)]).await.unwrap();
    let all =
        SequencerCounts { appended: 3, duplicates: 2, held: 2, released: 1, ..SequencerCounts::default() };
    assert_eq!(counted().await, all);
    // A settlement that the store rejects is not counted.
    let moved = settlement(&store, vec![step("a", 1, None)]);
    let moved = Settlement { counts: all, ..(*moved).clone() };
    assert!(matches!(store.settle(Arc::new(moved)).await.unwrap(), Settled::Moved(_)));
    assert_eq!(counted().await, all);
}
