//! The cases about held, conflicting and rejected deliveries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinSet;

use crate::error::Kind;
use crate::event::{Event, EventId, Partition, Position, Revision, StreamId};
use crate::log::{Entry, Expected, Limit};
use crate::revision::{Counter, Counters, Draw, REMEMBERED_CLIENTS};
use crate::sequence::{
    Conflict, ConflictReason, Delivery, DueGaps, Held, HoldingLimits, IngestAnswer, MAX_REJECTED, NotLogged,
    Policy, Refusal, Rejected, Resolution, Sequencer, SequencerCounts, Sequences, Settled, Settlement,
    Skipped, StreamChange, StreamState, StreamVersion, Totals, Waiting, WantedEvents,
};
use crate::store::Store;
use crate::testing::bad_json;
use crate::testing::conformance::{entry, json, soon, stream};

const ALL: Limit = Limit { events: usize::MAX, bytes: usize::MAX };
const BOUNDLESS: Totals = Totals { events: u64::MAX, bytes: u64::MAX, conflicts: u64::MAX };

fn delivery(name: &str, revision: u64) -> Delivery {
    let entry = Arc::new(entry(&format!("{name}-{revision}")));
    Delivery { stream: stream(name), revision: Some(Revision(revision)), previous: None, entry }
}

fn time(second: i64) -> Timestamp {
    Timestamp::from_microsecond(second * 1_000_000 + 7).unwrap()
}

async fn revisions(store: &impl Store, name: &str) -> Vec<u64> {
    let events = store.read_stream(&stream(name), Revision(0), ALL).await.unwrap();
    events.iter().map(|event| event.revision.0).collect()
}

async fn standing(store: &impl Sequences, name: &str) -> StreamState {
    store.survey(vec![stream(name)]).await.unwrap().streams.remove(&stream(name)).unwrap()
}

async fn totals(store: &impl Sequences) -> Totals {
    let survey = store.survey(Vec::new()).await.unwrap();
    survey.totals.values().fold(Totals::default(), |sum, totals| Totals {
        events: sum.events + totals.events,
        bytes: sum.bytes + totals.bytes,
        conflicts: sum.conflicts + totals.conflicts,
    })
}

/// Asserts that nothing is held, and that the totals say so.
async fn nothing_is_held(store: &impl Sequences) {
    assert_eq!(store.waiting(None, 10).await.unwrap(), []);
    let Totals { events, bytes, .. } = totals(store).await;
    assert_eq!((events, bytes), (0, 0));
}

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
    let mut told: BTreeMap<(StreamId, Revision), BTreeSet<String>> = BTreeMap::new();
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
            told.entry(key).or_default().insert(said.to_owned());
        }
    }
    for name in 0..5 {
        assert_eq!(revisions(&store, &format!("s{name}")).await, (1..=20).collect::<Vec<_>>());
    }
    assert!(
        told.values().any(|said| said.contains("held"))
            && told.values().any(|said| said.contains("appended"))
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

fn step(name: &str, last: u64, version: Option<u64>) -> StreamChange {
    StreamChange {
        stream: stream(name),
        seen: StreamVersion { last: Revision(last), version },
        append: Vec::new(),
        hold: Vec::new(),
        unhold: Vec::new(),
        waiting: None,
    }
}

fn settlement(store: &impl Sequences, steps: Vec<StreamChange>) -> Arc<Settlement> {
    let partition = Partition::of(&steps[0].stream, store.partitions());
    Arc::new(Settlement { partition, steps, bounds: BOUNDLESS, ..Settlement::default() })
}

fn waiting(version: u64, held: &Held) -> Waiting {
    Waiting {
        version,
        skipped: Revision(0),
        events: 1,
        bytes: held.bytes(),
        first: held.revision,
        until: held.previous,
        highest: held.revision,
        since: held.since,
        ask_at: held.since,
        asked: 3,
        trouble: Some("no answer".to_owned()),
    }
}

fn held(name: &str, revision: u64) -> Held {
    let (revision, previous) = (Revision(revision), Revision(revision - 1));
    Held { stream: stream(name), revision, previous, since: time(5), entry: delivery(name, revision.0).entry }
}

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
        standing(&store, "s").await,
        StreamState { last: Revision(1), waiting: Some(waiting(7, &seven)) }
    );
    assert_eq!(revisions(&store, "s").await, [1]);
    applied(StreamChange { unhold: vec![Revision(7)], ..append(1, Some(7)) }).await;
    assert_eq!(standing(&store, "s").await, StreamState { last: Revision(2), waiting: None });
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
    assert!(matches!(answers[1], IngestAnswer::Appended(_)), "others go on: {answers:?}");
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
    assert_eq!(standing(&store, "s").await.waiting.unwrap().events, 1, "what comes after it waits");
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
    assert!(!ids.contains("x") && ids.contains("y"), "what was decided is not asked again: {ids:?}");
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
    assert_eq!(standing(&store, "s").await.waiting.unwrap().events, 1);
    let answers = soon(one.ingest(Policy::Contiguous, vec![delivery("s", 6)])).await.unwrap();
    assert!(matches!(answers[..], [IngestAnswer::Appended(_)]), "the stream goes on: {answers:?}");
}

/// A skipped revision is recorded with its reason, and nothing waits for it any more.
pub async fn what_is_skipped_is_remembered<S: Store + Sequences>(store: S) {
    let sequencer = Sequencer::new(store.clone());
    let fed = vec![delivery("s", 1), delivery("s", 4), delivery("s", 5), delivery("s", 9)];
    sequencer.ingest(Policy::Contiguous, fed).await.unwrap();
    for wrong in [1, 4, 5] {
        let refused = sequencer.skip(&stream("s"), Revision(wrong), "a guess").await.unwrap_err();
        assert_eq!(refused.kind(), Kind::Invalid, "{refused}");
        assert!(refused.to_string().contains("2 to 3"), "{refused}");
    }
    assert_eq!(sequencer.skip(&stream("s"), Revision(2), "lost for ever").await.unwrap(), 0);
    assert_eq!(sequencer.skip(&stream("s"), Revision(3), "lost, too").await.unwrap(), 2);
    assert_eq!(revisions(&store, "s").await, [1, 4, 5]);
    let Skipped { after, through, reason, .. } = &store.skipped(&stream("s")).await.unwrap()[1];
    assert_eq!((after.0, through.0, reason.as_str()), (2, 3, "lost, too"));
    assert_eq!(store.skipped(&stream("t")).await.unwrap(), []);
    let late = sequencer.ingest(Policy::Contiguous, vec![delivery("s", 2), delivery("s", 6)]).await.unwrap();
    assert!(matches!(late[..], [IngestAnswer::Conflict(_), IngestAnswer::Appended(_)]), "{late:?}");
    let refused = sequencer.skip(&stream("t"), Revision(1), "nothing waits").await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Invalid, "{refused}");
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

/// Streams that wait longest are resupplied first, and none before its time.
pub async fn what_waits_longest_is_overdue_first<S: Store + Sequences>(store: S) {
    for (name, since, ask_at) in [("a", 30, 30), ("b", 10, 40), ("c", 20, 20)] {
        let held = Held { since: time(since), ..held(name, 2) };
        let waiting = Waiting { ask_at: time(ask_at), ..waiting(1, &held) };
        let step = StreamChange { waiting: Some(waiting), hold: vec![held], ..step(name, 0, None) };
        store.settle(settlement(&store, vec![step])).await.unwrap();
    }
    let overdue = async |since, now, limit| {
        let due = DueGaps { since: time(since), now: time(now), end: time(100) };
        let found = store.overdue(due, limit).await.unwrap();
        found.into_iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(overdue(30, 40, 9).await, "b c a");
    assert_eq!(overdue(30, 40, 2).await, "b c");
    assert_eq!(overdue(29, 40, 9).await, "b c");
    assert_eq!(overdue(30, 39, 9).await, "c a");
    assert_eq!(overdue(9, 99, 9).await, "");
    // A clock that is wrong by more than the longest wait does not block a stream.
    for (name, since, ask_at) in [("d", 101, 30), ("e", 30, 101)] {
        let held = Held { since: time(since), ..held(name, 2) };
        let waiting = Waiting { ask_at: time(ask_at), ..waiting(1, &held) };
        let step = StreamChange { waiting: Some(waiting), hold: vec![held], ..step(name, 0, None) };
        store.settle(settlement(&store, vec![step])).await.unwrap();
    }
    assert_eq!(overdue(30, 30, 9).await, "c a e d");
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

/// Each number is returned once, without gaps, and a repeated request gets the same numbers.
pub async fn counters_count<S: Store + Counters>(store: S) {
    let draw = |counter: &str, client: &str, request, count| Draw {
        counter: counter.to_owned(),
        count,
        client: client.to_owned(),
        request,
    };
    assert_eq!(store.draw(draw("a", "x", 1, 1)).await.unwrap(), 1);
    assert_eq!(store.draw(draw("a", "y", 1, 10)).await.unwrap(), 2);
    assert_eq!(store.draw(draw("a", "x", 1, 1)).await.unwrap(), 1, "the same wish again");
    assert_eq!(store.draw(draw("a", "x", 2, 1)).await.unwrap(), 12);
    assert_eq!(store.draw(draw("b", "x", 2, 1)).await.unwrap(), 1, "another counter");
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let counter = Counter::gapless(store.clone(), "c").unwrap();
        tasks.spawn(async move {
            let mut drawn = Vec::new();
            for _ in 0..50 {
                drawn.push(counter.next().await.unwrap().0);
            }
            assert!(drawn.is_sorted_by(|a, b| a < b));
            drawn
        });
    }
    let mut all = BTreeSet::new();
    while let Some(drawn) = tasks.join_next().await {
        all.extend(drawn.unwrap());
    }
    assert_eq!(all, (1..=200).collect(), "each once, and none left out");
    let blocks = Counter::in_blocks(store.clone(), "c", 100).unwrap();
    for expected in 201..=350 {
        assert_eq!(blocks.next().await.unwrap().0, expected);
    }
    assert_eq!(Counter::gapless(store.clone(), "c").unwrap().next().await.unwrap().0, 401);
    // Clients that drew long ago are dropped, but no recent ones.
    for client in 0..=REMEMBERED_CLIENTS {
        store.draw(draw("d", &client.to_string(), 1, 1)).await.unwrap();
    }
    assert_eq!(store.draw(draw("d", "1", 1, 1)).await.unwrap(), 2);
}

/// Messages that are not events are kept once, with their bytes, up to a bound.
pub async fn rejected_messages_are_kept_until_they_are_forgotten<S: Store + Sequences>(store: S) {
    let rejected = |content: &[u8]| Rejected {
        source: "orders".to_owned(),
        reason: "it is no JSON".to_owned(),
        since: time(3),
        attributes: [("key".to_owned(), "k\u{e4}\n".to_owned())].into(),
        content: content.to_vec(),
    };
    let list = [rejected(b"\0\xff{"), rejected(b""), rejected(b"x")];
    store.reject(list.to_vec()).await.unwrap();
    let again = Rejected { since: time(8), ..list[0].clone() };
    store.reject(vec![again]).await.unwrap();
    let kept = store.rejected(None, 10).await.unwrap();
    assert_eq!(kept.len(), 3);
    assert_eq!(store.count_rejected().await.unwrap(), 3);
    assert!(list.iter().all(|rejected| kept.contains(rejected)), "{kept:?}");
    assert_eq!(store.rejected(Some(kept[0].id()), 1).await.unwrap()[..], kept[1..2]);
    assert!(store.forget(&kept[1].id()).await.unwrap());
    assert!(!store.forget(&kept[1].id()).await.unwrap());
    assert_eq!(store.rejected(None, 10).await.unwrap().len(), 2);
    for first in (0..MAX_REJECTED - 2).step_by(2_000) {
        let some =
            (first..MAX_REJECTED - 2).take(2_000).map(|number| rejected(number.to_string().as_bytes()));
        store.reject(some.collect()).await.unwrap();
    }
    let error = store.reject(vec![rejected(b"one more")]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Full, "{error}");
    store.reject(vec![list[0].clone()]).await.unwrap();
    assert!(store.forget(&list[0].id()).await.unwrap());
    store.reject(vec![rejected(b"one more")]).await.unwrap();
}
