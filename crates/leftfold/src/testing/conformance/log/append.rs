//! Appends: numbered, idempotent, concurrent.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tokio::task::JoinSet;

use super::fixtures::{ALL, all_of, everything, ids, partitions};
use crate::event::{EventKind, Partition, Position, Revision, StreamId};
use crate::json::Json;
use crate::log::{AppendError, Appended, Entry, Expected};
use crate::store::Store;
use crate::testing::bad_json;
use crate::testing::conformance::{append, entry, json, soon, stream};

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
