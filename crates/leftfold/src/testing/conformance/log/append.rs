//! The cases about the log.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tokio::task::JoinSet;

use crate::event::{Event, EventId, EventKind, Partition, Position, Revision, StreamId};
use crate::json::Json;
use crate::log::{AppendError, Appended, Entry, Expected, Limit};
use crate::mark::{Lane, Mark};
use crate::store::Store;
use crate::testing::bad_json;
use crate::testing::conformance::{append, entry, json, soon, stream, waits};

const ALL: Limit = Limit { events: usize::MAX, bytes: usize::MAX };

fn partitions(store: &impl Store) -> Vec<Partition> {
    (0..store.partitions()).map(Partition).collect()
}

/// Returns the whole log, partition by partition.
async fn everything(store: &impl Store) -> Vec<Event> {
    let mut events = Vec::new();
    for partition in partitions(store) {
        events.extend(store.read(partition, Position(0), ALL).await.unwrap().events);
    }
    events
}

async fn all_of(store: &impl Store, name: &str) -> Vec<Event> {
    store.read_stream(&stream(name), Revision(0), ALL).await.unwrap()
}

fn ids(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.id.as_str()).collect()
}

/// Revisions count 1, 2, 3 …, and events are read back as they were appended.
pub async fn appended_events_are_numbered_and_read_back<S: Store>(store: S) {
    let mut first = entry("a");
    first.metadata = Some(json(r#"{"by":"ann"}"#));
    let second = Entry {
        kind: EventKind::new("other").unwrap(),
        time: Timestamp::from_microsecond(-1).unwrap(),
        data: json(r#"{"n": [1, 2.5, null, "\u0000"]}"#),
        ..entry("b")
    };
    let appended =
        store.append(stream("s"), Expected::NONE, vec![first.clone(), second.clone()]).await.unwrap();
    let Appended::New(bookmark) = appended else { panic!("{appended:?} should be new") };
    assert_eq!((bookmark.revision, &bookmark.stream), (Revision(2), &stream("s")));
    assert_eq!(bookmark.partition, Partition::of(&stream("s"), store.partitions()));

    let third =
        store.append(stream("s"), Revision(2).into(), vec![entry("c")]).await.unwrap().into_bookmark();
    assert_eq!(third.revision, Revision(3));
    assert!(third.position > bookmark.position, "{third:?} comes after {bookmark:?}");

    let events = all_of(&store, "s").await;
    assert_eq!(ids(&events), ["a", "b", "c"]);
    assert_eq!(events.iter().map(|event| event.revision.0).collect::<Vec<_>>(), [1, 2, 3]);
    for (event, entry) in events.iter().zip([first, second, entry("c")]) {
        assert_eq!((&event.kind, event.time, &event.stream), (&entry.kind, entry.time, &stream("s")));
        assert_eq!((&event.data, &event.metadata), (&entry.data, &entry.metadata));
    }
    assert_eq!((events[1].bookmark(), events[2].bookmark()), (bookmark, third));
    assert_eq!(everything(&store).await, events);
}

/// An append that expects another revision is rejected, names both revisions, and writes nothing.
pub async fn a_wrong_expectation_names_both_revisions<S: Store>(store: S) {
    append(&store, "s", "a").await;
    for expected in [0, 2, 7] {
        let refused = store.append(stream("s"), Revision(expected).into(), vec![entry("b")]).await;
        let error = refused.unwrap_err();
        let AppendError::WrongRevision { expected: named, actual, stream: of } = &error else {
            panic!("{error:?} should name revisions")
        };
        assert_eq!((*named, *actual, of), (Revision(expected), Revision(1), &stream("s")));
    }
    let refused = store.append(stream("none"), Revision(1).into(), vec![entry("b")]).await.unwrap_err();
    assert!(matches!(refused, AppendError::WrongRevision { actual: Revision(0), .. }), "{refused:?}");
    assert_eq!(ids(&everything(&store).await), ["a"]);
}

/// A repeated append returns the first one's bookmark, whatever revision it expects and whatever
/// times its events have.
pub async fn a_repeated_append_is_a_duplicate<S: Store>(store: S) {
    append(&store, "s", "before").await;
    let pair = || vec![entry("a"), entry("b")];
    let first = store.append(stream("s"), Revision(1).into(), pair()).await.unwrap();
    let Appended::New(bookmark) = first else { panic!("{first:?} should be new") };
    append(&store, "s", "after").await;

    let mut later = pair();
    later[0].time = Timestamp::from_microsecond(7).unwrap();
    later[1].data = json(r#"  "b" "#);
    for (expected, entries) in [
        (Expected::Any, pair()),
        (Revision(1).into(), pair()),
        (Revision(99).into(), pair()),
        (Expected::Any, later),
    ] {
        let again = store.append(stream("s"), expected, entries).await.unwrap();
        assert_eq!(again, Appended::Duplicate(bookmark.clone()));
    }
    let part = store.append(stream("s"), Expected::Any, vec![entry("a")]).await.unwrap();
    assert!(matches!(&part, Appended::Duplicate(bookmark) if bookmark.revision == Revision(2)), "{part:?}");
    assert_eq!(ids(&all_of(&store, "s").await), ["before", "a", "b", "after"]);
}

/// An id that another event has, in any stream, is rejected, and nothing of the append is written.
pub async fn a_taken_id_is_refused<S: Store>(store: S) {
    let bookmark = append(&store, "s", "a").await;
    let other = Entry { data: json("1"), ..entry("a") };
    let with_metadata = Entry { metadata: Some(json("{}")), ..entry("a") };
    for (name, entries) in [
        ("s", vec![other.clone()]),
        ("s", vec![with_metadata]),
        ("t", vec![entry("a")]),
        ("t", vec![entry("new"), other]),
    ] {
        let error = store.append(stream(name), Expected::Any, entries).await.unwrap_err();
        let AppendError::IdTaken { id, stored } = &error else { panic!("{error:?} should name the id") };
        assert_eq!((id.as_str(), stored), ("a", &bookmark));
    }
    assert_eq!(ids(&everything(&store).await), ["a"]);
}

/// An append is no repetition if only some of its events are in the log, or in another order.
pub async fn an_append_that_is_partly_there_is_refused<S: Store>(store: S) {
    store.append(stream("s"), Expected::Any, vec![entry("a"), entry("b"), entry("c")]).await.unwrap();
    for (some, first) in
        [(["a", "new"], "a"), (["new", "a"], "a"), (["b", "a"], "b"), (["a", "c"], "a"), (["c", "new"], "c")]
    {
        let error = store.append(stream("s"), Expected::Any, some.map(entry).into()).await.unwrap_err();
        let AppendError::PartlyThere { id, stored } = &error else { panic!("{some:?}: {error:?}") };
        assert_eq!((id.as_str(), &stored.stream), (first, &stream("s")), "{some:?}");
    }
    assert_eq!(ids(&everything(&store).await), ["a", "b", "c"]);
}

/// An append without events, or with the same event twice, is rejected.
pub async fn an_empty_append_is_refused<S: Store>(store: S) {
    for entries in [vec![], vec![entry("a"), entry("a")]] {
        let error = store.append(stream("s"), Expected::Any, entries).await.unwrap_err();
        assert!(matches!(error, AppendError::Invalid(_)), "{error:?}");
    }
    assert!(everything(&store).await.is_empty());
}

/// Data and metadata must be strict JSON, or nothing is appended. Content that is already stored is
/// still read back.
pub async fn json_that_breaks_a_rule_is_not_appended<S: Store>(store: S) {
    for bad in bad_json() {
        let broken = [
            Entry { data: json(&bad.text), ..entry("bad") },
            Entry { metadata: Some(json(&bad.text)), ..entry("bad") },
        ];
        for broken in broken {
            let entries = vec![entry("good"), broken];
            let error = store.append(stream("s"), Expected::Any, entries).await.unwrap_err();
            assert!(matches!(error, AppendError::Invalid(_)), "{}: {error:?}", bad.name);
            assert!(bad.is_described_by(&error.to_string()), "{}: {error}", bad.name);
        }
    }
    assert!(all_of(&store, "s").await.is_empty());
    // An earlier version may have stored it.
    let old = Json::stored(r#"{"a":1e999,"a":"\ud83d"}"#).assume_strict();
    let entries = vec![Entry { data: old.clone(), ..entry("old") }];
    store.append(stream("s"), Expected::Any, entries).await.unwrap();
    assert_eq!(all_of(&store, "s").await[0].data, old);
}

/// Concurrent appends to one stream give each event its own revision, and keep a batch together.
pub async fn concurrent_appends_get_each_revision_once<S: Store>(store: S) {
    const TASKS: usize = 24;
    const ROUNDS: usize = 10;
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let store = store.clone();
        tasks.spawn(async move {
            for round in 0..ROUNDS {
                let pair = ["x", "y"].map(|part| entry(&format!("{task}-{round}-{part}")));
                let bookmark =
                    store.append(stream("s"), Expected::Any, pair.into()).await.unwrap().into_bookmark();
                assert!(bookmark.revision.0 >= 2 * (round as u64 + 1));
            }
        });
    }
    soon(tasks.join_all()).await;
    let events = all_of(&store, "s").await;
    let revisions = events.iter().map(|event| event.revision.0);
    assert!(revisions.eq(1..=(TASKS * ROUNDS * 2) as u64), "every revision, once");
    for pair in events.chunks(2) {
        assert_eq!(pair[0].id.as_str().replace('x', "y"), pair[1].id.as_str(), "a batch stays together");
    }
    assert!(events.is_sorted_by_key(|event| event.position));
}

/// Of many appends that expect the same revision one is accepted, and the others learn the new
/// revision.
pub async fn one_of_many_equal_expectations_wins<S: Store>(store: S) {
    for round in 0..10 {
        let mut tasks = JoinSet::new();
        for task in 0..8 {
            let store = store.clone();
            tasks.spawn(async move {
                let entries = vec![entry(&format!("{round}-{task}"))];
                store.append(stream("s"), Revision(round).into(), entries).await
            });
        }
        let results = soon(tasks.join_all()).await;
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
        for error in results.into_iter().filter_map(Result::err) {
            let AppendError::WrongRevision { actual, .. } = error else { panic!("{error:?}") };
            assert_eq!(actual, Revision(round + 1));
        }
    }
    assert_eq!(all_of(&store, "s").await.len(), 10);
}

/// Positions of a partition are unique, and those of a stream follow its revisions.
pub async fn concurrent_appends_to_many_streams_stay_in_order<S: Store>(store: S) {
    let mut tasks = JoinSet::new();
    for task in 0..40 {
        let store = store.clone();
        tasks.spawn(async move {
            let name = format!("s{task}");
            for revision in 1..=5 {
                let bookmark = append(&store, &name, &format!("{task}-{revision}")).await;
                assert_eq!(bookmark.revision, Revision(revision));
            }
        });
    }
    soon(tasks.join_all()).await;
    let mut streams = BTreeMap::<StreamId, Vec<u64>>::new();
    for partition in partitions(&store) {
        let events = store.read(partition, Position(0), ALL).await.unwrap().events;
        assert!(events.is_sorted_by(|a, b| a.position < b.position), "positions of {partition} only grow");
        for event in events {
            assert_eq!(event.partition, Partition::of(&event.stream, store.partitions()));
            streams.entry(event.stream).or_default().push(event.revision.0);
        }
    }
    assert_eq!(streams.len(), 40);
    assert!(streams.values().all(|revisions| *revisions == [1, 2, 3, 4, 5]), "{streams:?}");
}

/// Pages of any size add up to the whole, `through` is the end of each, and `more` says whether
/// another follows.
pub async fn pages_end_at_a_number_of_events<S: Store>(store: S) {
    for number in 0..7 {
        append(&store, "s", &format!("e{number}")).await;
    }
    let whole = all_of(&store, "s").await;
    let partition = whole[0].partition;
    for size in [0, 1, 2, 3, 6, 7, 8, usize::MAX] {
        let (mut read, mut after, mut pages) = (Vec::new(), Position(0), 0);
        loop {
            let limit = Limit { events: size, bytes: usize::MAX };
            let page = store.read(partition, after, limit).await.unwrap();
            assert!(page.events.len() <= size.max(1) && !page.events.is_empty());
            assert!(page.through >= page.events.last().unwrap().position);
            assert_eq!(page.more, read.len() + page.events.len() < whole.len(), "size {size}, page {pages}");
            after = page.through;
            read.extend(page.events);
            pages += 1;
            if !page.more {
                break;
            }
        }
        assert_eq!(read, whole, "in pages of {size}");
        assert_eq!(pages, whole.len().div_ceil(size.clamp(1, 7)), "in pages of {size}");
        let end = store.read(partition, after, ALL).await.unwrap();
        assert!(end.events.is_empty() && !end.more && end.through == after, "{end:?}");
    }
}

/// A page ends before it has too many bytes, but always has an event.
pub async fn pages_end_at_a_number_of_bytes<S: Store>(store: S) {
    for (id, size) in [("a", 100), ("b", 100), ("c", 1_000), ("d", 10)] {
        let sized = |size: usize| Json::of(&"x".repeat(size - 2)).unwrap();
        let metadata = Some(Json::of(&serde_json::json!({ "m": "y".repeat(92) })).unwrap());
        let entry = Entry { data: sized(size), metadata, ..entry(id) };
        store.append(stream("s"), Expected::Any, vec![entry]).await.unwrap();
    }
    let partition = Partition::of(&stream("s"), store.partitions());
    for (bytes, pages) in [
        (0, vec!["a", "b", "c", "d"]),
        (200, vec!["a", "b", "c", "d"]),
        (399, vec!["a", "b", "c", "d"]),
        (400, vec!["ab", "c", "d"]),
        (1_209, vec!["ab", "c", "d"]),
        (1_210, vec!["ab", "cd"]),
        (1_500, vec!["abc", "d"]),
        (9_999, vec!["abcd"]),
    ] {
        let mut read = Vec::new();
        let mut after = Position(0);
        loop {
            let page = store.read(partition, after, Limit { events: 100, bytes }).await.unwrap();
            read.push(ids(&page.events).concat());
            after = page.through;
            if !page.more {
                break;
            }
        }
        assert_eq!(read, pages, "at most {bytes} bytes");
    }
}

/// A stream is read from any revision on, up to a limit, without events of other streams.
pub async fn a_stream_is_read_in_pages<S: Store>(store: S) {
    for number in 1..=6 {
        append(&store, "s", &format!("s{number}")).await;
        append(&store, "s2", &format!("other{number}")).await;
    }
    for (after, events, expected) in [
        (0, 3, vec!["s1", "s2", "s3"]),
        (3, 3, vec!["s4", "s5", "s6"]),
        (5, 3, vec!["s6"]),
        (6, 3, vec![]),
        (9, 3, vec![]),
        (2, 0, vec!["s3"]),
    ] {
        let limit = Limit { events, bytes: usize::MAX };
        let read = store.read_stream(&stream("s"), Revision(after), limit).await.unwrap();
        assert_eq!(ids(&read), expected, "after {after}");
    }
    let limit = Limit { events: 100, bytes: 9 };
    let read = store.read_stream(&stream("s"), Revision(1), limit).await.unwrap();
    assert_eq!(ids(&read), ["s2", "s3"], "two of four bytes each");
    assert!(all_of(&store, "none").await.is_empty());
}

/// The head of a partition is its last event's position.
pub async fn heads_follow_appends<S: Store>(store: S) {
    assert_eq!(store.heads().await.unwrap(), Mark::default());
    let mut expected = Mark::default();
    for number in 0..20 {
        let bookmark = append(&store, &format!("s{number}"), &format!("e{number}")).await;
        expected.advance(&Lane::from(bookmark.partition), bookmark.position.0);
        let heads = store.heads().await.unwrap();
        assert_eq!(heads, expected);
    }
    assert_eq!(expected.lanes().count(), usize::from(store.partitions()), "all partitions are in use");
}

/// Readers that follow concurrent appends see every event once and in order: nothing appears behind
/// them.
pub async fn a_reader_skips_nothing<S: Store>(store: S) {
    const WRITERS: usize = 12;
    const EACH: usize = 25;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = store.clone();
        writers.spawn(async move {
            for number in 0..EACH {
                let name = format!("s{}", (writer + number) % 9);
                append(&store, &name, &format!("{writer}-{number}")).await;
            }
        });
    }
    let reader = {
        let store = store.clone();
        tokio::spawn(async move {
            let mut mark = Mark::default();
            let mut seen = Vec::new();
            while seen.len() < WRITERS * EACH {
                store.grown(&mark).await.unwrap();
                for partition in partitions(&store) {
                    let limit = Limit { events: 7, bytes: usize::MAX };
                    let page = store.read(partition, mark.position(partition), limit).await.unwrap();
                    assert!(page.events.iter().all(|event| event.position > mark.position(partition)));
                    mark.advance(&partition.into(), page.through.0);
                    seen.extend(page.events);
                }
            }
            seen
        })
    };
    soon(writers.join_all()).await;
    let seen = soon(reader).await.unwrap();
    assert_eq!(ids(&seen).into_iter().collect::<BTreeSet<_>>().len(), WRITERS * EACH, "each once");
    let mut revisions = BTreeMap::new();
    for event in &seen {
        let last = revisions.insert(&event.stream, event.revision.0).unwrap_or(0);
        assert_eq!(event.revision.0, last + 1, "{} in order", event.stream);
    }
}

/// A wait ends with an append to any partition, and not without one.
pub async fn waiting_for_growth_ends_with_an_append<S: Store>(store: S) {
    assert!(waits(store.grown(&Mark::default())).await, "nothing was appended");
    for number in 0..8 {
        let before = store.heads().await.unwrap();
        assert!(waits(store.grown(&before)).await, "nothing was appended since");
        let waiting = {
            let (store, before) = (store.clone(), before.clone());
            tokio::spawn(async move { store.grown(&before).await })
        };
        append(&store, &format!("s{number}"), &format!("e{number}")).await;
        soon(waiting).await.unwrap().unwrap();
        soon(store.grown(&before)).await.unwrap();
    }
    let far: Mark = partitions(&store).into_iter().map(|partition| (partition.into(), 1_000)).collect();
    assert!(waits(store.grown(&far)).await, "no partition is beyond that");
}

/// An append at the moment when a wait starts is not missed.
pub async fn no_wake_up_is_lost<S: Store>(store: S) {
    for round in 0..150 {
        let before = store.heads().await.unwrap();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let (store, before) = (store.clone(), before.clone());
                tokio::spawn(async move { store.grown(&before).await })
            })
            .collect();
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        append(&store, &format!("s{}", round % 5), &format!("e{round}")).await;
        for waiter in waiting {
            soon(waiter).await.unwrap().unwrap();
        }
    }
}

/// Calls that are dropped half-way do no harm to the store.
pub async fn a_cancelled_wait_hurts_nobody<S: Store>(store: S) {
    for round in 0..40 {
        let before = store.heads().await.unwrap();
        let waiting = {
            let (store, before) = (store.clone(), before.clone());
            tokio::spawn(async move { store.grown(&before).await })
        };
        let appending = {
            let store = store.clone();
            tokio::spawn(async move { append(&store, "s", &format!("e{round}")).await })
        };
        tokio::task::yield_now().await;
        waiting.abort();
        appending.abort();
        let bookmark = append(&store, "s", &format!("e{round}")).await;
        assert_eq!(bookmark.revision, Revision(round + 1), "there once, whoever appended it");
        soon(store.grown(&before)).await.unwrap();
    }
}

/// Names and JSON with any characters come back byte for byte.
pub async fn odd_names_and_content_come_back_as_they_were<S: Store>(store: S) {
    let long = "ü".repeat(127);
    let names =
        ["ünï cödé 🦀", "'; DROP TABLE x; --", "\"q\" `b` [x] %_?$.{}", "a/b\\c", " ", &long, "𝒳:1:2", "0"];
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let big = Json::of(&"z".repeat(200_000)).unwrap();
    let contents = [
        "null",
        "0",
        r#""""#,
        r#"{"$a":{"b.c":1}}"#,
        "123456789012345678901234567890",
        "1e300",
        &deep,
        big.as_str(),
    ];
    for (name, content) in names.iter().zip(contents) {
        let entry = Entry {
            id: EventId::new(name).unwrap(),
            kind: EventKind::new(name).unwrap(),
            data: Json::stored(content),
            metadata: Some(Json::of(&serde_json::json!({ "name": name })).unwrap()),
            ..entry("x")
        };
        let bookmark =
            store.append(stream(name), Expected::NONE, vec![entry.clone()]).await.unwrap().into_bookmark();
        assert_eq!(bookmark.stream.as_str(), *name);
        let events = all_of(&store, name).await;
        assert_eq!(events.len(), 1, "{name}");
        let event = &events[0];
        assert_eq!((&event.id, &event.kind, event.stream.as_str()), (&entry.id, &entry.kind, *name));
        assert_eq!((&event.data, &event.metadata), (&entry.data, &entry.metadata), "{name}");
        let again = store.append(stream(name), Expected::Any, vec![entry]).await.unwrap();
        assert_eq!(again, Appended::Duplicate(bookmark));
    }
}

/// Writes of one handle are visible to another, even after the first is dropped.
pub async fn clones_share_one_store<S: Store>(store: S) {
    let other = store.clone();
    append(&store, "s", "a").await;
    assert_eq!(ids(&all_of(&other, "s").await), ["a"]);
    drop(store);
    append(&other, "s", "b").await;
    assert_eq!(ids(&all_of(&other, "s").await), ["a", "b"]);
}
