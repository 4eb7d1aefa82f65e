//! Loads, scans, and lists of parked documents.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::task::JoinSet;

use super::fixtures::{applied, cart, commit, id, insert, load, parked, record};
use crate::documents::{
    Checkpoint, Collection, CollectionWrites, Commit, DocumentCounts, DocumentWrite, Header, Parked, Record,
};
use crate::event::Partition;
use crate::json::Json;
use crate::mark::{Lane, Mark};
use crate::store::Store;
use crate::testing::conformance::soon;

/// Loading returns the existing records once each, and nothing else.
pub async fn what_is_missing_is_left_out<S: Store>(store: S) {
    store.prepare(&cart()).await.unwrap();
    assert_eq!(load(&store, &["a", "b"]).await, []);
    assert_eq!(load(&store, &[]).await, []);
    let (a, c) = (record("a", 1, "{}"), record("c", 2, "[1]"));
    applied(&commit(&store, None, vec![insert(a.clone()), insert(c.clone())]).await);
    assert_eq!(load(&store, &["c", "b", "a"]).await, [a, c]);
    assert_eq!(store.checkpoint(&cart()).await.unwrap(), Checkpoint::default());
    applied(&commit(&store, None, vec![]).await);
}

/// Ids, bodies, marks and errors of any content come back unchanged.
pub async fn documents_come_back_exactly<S: Store>(store: S) {
    store.prepare(&cart()).await.unwrap();
    let long = "ü".repeat(127);
    let deep = format!("{}1{}", r#"{"a":["#.repeat(50), "]}".repeat(50));
    let big = format!("{:?}", "z".repeat(1_500_000));
    let spaced = r#"{ "b" : 1.50, "a" : 1e2, "b.c": {"$d": null} }"#;
    let names = ["ünï 🦀", "'; DROP TABLE cart; --", "\"q\"`b`[x]%_?", "$where", "a.b/c", " ", &long, "0"];
    let bodies =
        ["null", "\"\"", "-0.0", "12345678901234567890123", &deep, &big, spaced, r#""\u0000 \ud83e\udd80""#];
    let odd: Mark =
        [(Lane::named("it's \"odd\""), 7), (Lane::from(Partition(2)), u64::MAX)].into_iter().collect();
    let records: Vec<_> = names
        .iter()
        .zip(bodies)
        .zip(1..)
        .map(|((name, body), number)| Record {
            id: id(name),
            header: Header { mark: odd.clone(), parked: (number % 2 == 0).then(|| parked(number).into()) },
            body: Some(Json::stored(body)),
        })
        .collect();
    applied(&commit(&store, None, records.iter().cloned().map(insert).collect()).await);
    for record in &records {
        assert_eq!(load(&store, &[record.id.as_str()]).await, std::slice::from_ref(record));
        let same = DocumentWrite { expected: Some(record.header.clone()), record: record.clone() };
        applied(&commit(&store, None, vec![same]).await);
    }
    let mut sorted = records;
    sorted.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(store.scan(&cart(), None, 100).await.unwrap(), sorted);
}

/// The same id in two collections is two documents, and the hidden collection is one more.
pub async fn collections_are_apart<S: Store>(store: S) {
    let (other, hidden) = (Collection::new("cart_1").unwrap(), cart().streams());
    store.prepare(&cart()).await.unwrap();
    store.prepare(&other).await.unwrap();
    let all = [(cart(), "1"), (other.clone(), "2"), (hidden.clone(), "3")].map(|(collection, body)| {
        CollectionWrites { collection, writes: vec![insert(record("a", 1, body))] }
    });
    applied(&store.commit(Arc::new(Commit { advance: None, changes: all.into() })).await.unwrap());
    for (collection, body) in [(cart(), "1"), (other, "2"), (hidden, "3")] {
        let expected = [record("a", 1, body)];
        assert_eq!(store.load(&collection, vec![id("a")]).await.unwrap(), expected, "{collection}");
        assert_eq!(store.scan(&collection, None, 9).await.unwrap(), expected, "{collection}");
        assert_eq!(
            store.count(&collection).await.unwrap(),
            DocumentCounts { documents: 1, ..DocumentCounts::default() }
        );
    }
}

/// A collection may be prepared any number of times, also concurrently.
pub async fn preparing_again_keeps_what_is_there<S: Store>(store: S) {
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let store = store.clone();
        tasks.spawn(async move { store.prepare(&cart()).await.unwrap() });
    }
    soon(tasks.join_all()).await;
    applied(&commit(&store, None, vec![insert(record("a", 1, "1"))]).await);
    store.prepare(&cart()).await.unwrap();
    assert_eq!(load(&store, &["a"]).await, [record("a", 1, "1")]);
}

/// A scan returns the documents that readers see, in the order of ids, page by page.
pub async fn documents_are_scanned_in_order<S: Store>(store: S) {
    store.prepare(&cart()).await.unwrap();
    assert_eq!(store.scan(&cart(), None, 9).await.unwrap(), []);
    let names = ["b", "a", "B", "ä", "a b", "é", "10", "9", "zz", "🦀", "\u{ffff}"];
    let mut records: Vec<_> = names.iter().map(|name| record(name, 1, "1")).collect();
    let hidden = [record("aa", 1, ""), record("0", 1, ""), record("zzz", 1, "")];
    applied(&commit(&store, None, records.iter().chain(&hidden).cloned().map(insert).collect()).await);
    records.sort_by(|a, b| a.id.cmp(&b.id));
    for size in [1, 2, 3, 100] {
        let mut scanned: Vec<Record> = Vec::new();
        loop {
            let after = scanned.last().map(|record| record.id.clone());
            let page = store.scan(&cart(), after, size).await.unwrap();
            if page.is_empty() {
                break;
            }
            assert!(page.len() == size || scanned.len() + page.len() == records.len());
            scanned.extend(page);
        }
        assert_eq!(scanned, records, "in pages of {size}");
    }
    for (limit, bytes, size) in [(100, usize::MAX, 11), (100, 0, 1), (3, usize::MAX, 3)] {
        let (mut scanned, mut more): (Vec<Record>, _) = (Vec::new(), true);
        while more {
            let after = scanned.last().map(|record| record.id.clone());
            let page;
            (page, more) = store.scan_page(&cart(), after, limit, bytes).await.unwrap();
            assert!(page.len() == size || !more || scanned.len() + page.len() == records.len());
            scanned.extend(page);
        }
        assert_eq!(scanned, records, "in pages of {limit} and {bytes} bytes");
    }
    assert_eq!(store.scan(&cart(), Some(id("a")), 1).await.unwrap(), [record("a b", 1, "1")]);
    assert_eq!(store.scan(&cart(), Some(id("aaa")), 1).await.unwrap(), [record("b", 1, "1")]);
}

/// Parked records are listed by id, with or without a body, until they are unparked.
pub async fn parked_documents_are_listed_and_counted<S: Store>(store: S) {
    store.prepare(&cart()).await.unwrap();
    let since = |second: i64| Timestamp::from_second(1_700_000_000 + second).unwrap();
    let sick = |name: &str, body: &str, second| {
        let healthy = record(name, 1, body);
        let error = r#"it said {"since":"1970-01-01T00:00:00Z"}"#.to_owned();
        let parked = Parked { since: since(second), error, ..parked(2) };
        Record { header: Header { parked: Some(parked.into()), ..healthy.header }, ..healthy }
    };
    let listed = [sick("a", "1", 20), sick("b", "", 10), sick("d", "1", 30)];
    let others = [record("c", 1, "1"), record("e", 1, "")];
    applied(&commit(&store, None, listed.iter().chain(&others).cloned().map(insert).collect()).await);
    assert_eq!(store.parked(&cart(), None, 9).await.unwrap(), listed);
    assert_eq!(store.parked(&cart(), None, 2).await.unwrap(), listed[..2]);
    assert_eq!(store.parked(&cart(), Some(id("a")), 1).await.unwrap(), listed[1..2]);
    assert_eq!(store.parked(&cart(), Some(id("d")), 9).await.unwrap(), []);
    assert_eq!(
        store.count(&cart()).await.unwrap(),
        DocumentCounts { documents: 3, parked: 3, parked_since: Some(since(10)) }
    );
    assert_eq!(load(&store, &["b"]).await, listed[1..2], "a reason to be parked comes back exactly");
    let cured = listed[1..].iter().map(|sick| DocumentWrite {
        expected: Some(sick.header.clone()),
        record: record(sick.id.as_str(), 2, "2"),
    });
    applied(&commit(&store, None, cured.collect()).await);
    assert_eq!(store.parked(&cart(), None, 9).await.unwrap(), listed[..1]);
    assert_eq!(
        store.count(&cart()).await.unwrap(),
        DocumentCounts { documents: 4, parked: 1, parked_since: Some(since(20)) }
    );
}
