//! Reads in pages, which skip nothing.

use std::collections::{BTreeMap, BTreeSet};

use tokio::task::JoinSet;

use super::fixtures::{ALL, all_of, ids, partitions};
use crate::event::{EventId, EventKind, Partition, Position, Revision};
use crate::json::Json;
use crate::log::{Appended, Entry, Expected, Limit};
use crate::mark::{Lane, Mark};
use crate::store::Store;
use crate::testing::conformance::{append, entry, soon, stream};

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
