//! The stored form, field by field, because other programs and later versions read it. Also checks
//! that MongoDB uses the indexes made for its queries.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use std::sync::Arc;

use bson::{Bson, DateTime, Document, doc};
use common::{REPLICA_SET, STANDALONE};
use jiff::Timestamp;
use leftfold::log::Entry;
use leftfold::sequence::{
    Conflict, ConflictReason, Held, Rejected, Resolution, Settled, Settlement, Skipped, StreamChange,
    StreamVersion, Totals, Waiting,
};
use leftfold::{
    Event, EventId, EventKind, Expected, Json, Leftfold, Memory, NewEvent, Projection, Revision,
    Sequences as _, SplitStore, Store, StreamId, fold,
};
use leftfold_mongodb::Mongo;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Visit {
    Began { at: DateTime },
    Looked { page: String },
    Left,
    Stumbled,
}

/// A document with a BSON type in it.
#[derive(Debug, Default, PartialEq, Deserialize, Serialize)]
struct Visitor {
    since: Option<DateTime>,
    pages: Vec<String>,
    longest: u64,
}

struct Visitors;

impl Projection for Visitors {
    type Event = Visit;
    type Document = Visitor;

    fn name(&self) -> &'static str {
        "visitors"
    }

    fn fold(&self, visitor: Option<Visitor>, event: &Event<Visit>) -> Result<Option<Visitor>, fold::Error> {
        let mut visitor = visitor.unwrap_or_default();
        match &event.data {
            Visit::Began { at } => visitor.since = Some(*at),
            Visit::Looked { page } => {
                visitor.longest = visitor.longest.max(page.len() as u64);
                visitor.pages.push(page.clone());
            }
            Visit::Left => return Ok(None),
            Visit::Stumbled => return Err("no idea how".into()),
        }
        Ok(Some(visitor))
    }
}

const BEGAN: i64 = 1_767_225_600_123;

/// Appends the visits of three visitors: one looks, one leaves, one stumbles.
async fn visits(store: impl Store) {
    let app = Leftfold::on(store).projection(Visitors).start().await.unwrap();
    let visits = [
        ("ann", Visit::Began { at: DateTime::from_millis(BEGAN) }),
        ("ann", Visit::Looked { page: "/".into() }),
        ("bob", Visit::Looked { page: "/".into() }),
        ("bob", Visit::Left),
        ("cid", Visit::Looked { page: "/".into() }),
        ("cid", Visit::Stumbled),
    ];
    for (number, (visitor, visit)) in visits.iter().enumerate() {
        let event = NewEvent::encode(visit).unwrap().with_id(format!("e{number}")).unwrap();
        let event = NewEvent { time: Some("2026-01-01T00:00:00.123456Z".parse().unwrap()), ..event };
        app.append_events(visitor, Expected::Any, vec![event]).await.unwrap();
    }
    app.caught_up().await.unwrap();
    let ann = app.get(Visitors, "ann").await.unwrap().unwrap();
    assert_eq!((ann.since, ann.longest), (Some(DateTime::from_millis(BEGAN)), 1));
    app.stop().await;
}

/// Returns all documents of a collection by id, without values that differ between runs.
async fn all(store: &Mongo, collection: &str) -> Vec<Document> {
    let mut found = store
        .database()
        .collection::<Document>(collection)
        .find(doc! {})
        .sort(doc! { "_id": 1 })
        .await
        .unwrap();
    let mut all = Vec::new();
    while found.advance().await.unwrap() {
        let mut document = found.deserialize_current().unwrap();
        if let Ok(fold) = document.get_document_mut("_fold") {
            if let Ok(parked) = fold.get_str("parked") {
                let mut parked: serde_json::Value = serde_json::from_str(parked).unwrap();
                parked["since"] = "…".into();
                fold.insert("parked", parked.to_string());
            }
            if fold.contains_key("by") {
                fold.insert("by", "…");
            }
        }
        for field in ["asked", "until", "owner"] {
            if collection == "leftfold.leases" && document.contains_key(field) {
                document.insert(field, "…");
            }
        }
        all.push(document);
    }
    all
}

fn lines(documents: &[Document]) -> String {
    let lines: Vec<_> = documents.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_in_a_replica_set() {
    let store = REPLICA_SET.store(Mongo::options()).await;
    visits(store.clone()).await;
    let mut text = String::new();
    for collection in [
        "leftfold.meta",
        "leftfold.heads",
        "leftfold.events",
        "leftfold.checkpoints",
        "leftfold.leases",
        "leftfold.docs.visitors",
        "visitors",
    ] {
        let documents = lines(&all(&store, collection).await);
        text.extend([collection, "\n", &documents, "\n\n"]);
    }
    insta::assert_snapshot!(text);
}

fn time(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(1_767_225_600_000_000 + micros).unwrap()
}

fn entry(id: &str) -> Arc<Entry> {
    Arc::new(Entry {
        id: EventId::new(id).unwrap(),
        kind: EventKind::new("looked").unwrap(),
        time: time(1_001),
        data: Json::parse(r#"{"page":1.0}"#).unwrap(),
        metadata: Some(Json::parse(r#"{"by":"ann"}"#).unwrap()),
    })
}

/// Stores one of everything: held events, conflicts with and without a resolution, skipped
/// revisions, a rejected message.
async fn settle(store: &Mongo) {
    let stream = StreamId::new("ann").unwrap();
    let hold = [7, 9].map(|revision| Held {
        stream: stream.clone(),
        revision: Revision(revision),
        previous: Revision(revision - 1),
        since: time(2),
        entry: entry(&format!("ann-{revision}")),
    });
    let waiting = Waiting {
        version: 11,
        skipped: Revision(4),
        events: 2,
        bytes: hold.iter().map(Held::bytes).sum(),
        first: Revision(7),
        until: Revision(6),
        highest: Revision(9),
        since: time(2),
        ask_at: time(3),
        asked: 1,
        trouble: Some("no answer".to_owned()),
    };
    let conflict = |id: &str| Conflict {
        stream: stream.clone(),
        revision: Revision(1),
        why: ConflictReason::Logged,
        since: time(4),
        entry: entry(id),
        decided: None,
    };
    let (after, through, reason) = (Revision(3), Revision(4), "lost for ever".to_owned());
    let settlement = Settlement {
        steps: vec![StreamChange {
            stream: stream.clone(),
            seen: StreamVersion { last: Revision(0), version: None },
            append: vec![(Revision(1), entry("ann-1")), (Revision(3), entry("ann-3"))],
            hold: hold.to_vec(),
            unhold: Vec::new(),
            waiting: Some(waiting),
        }],
        conflicts: vec![conflict("other"), conflict("another")],
        skipped: Some(Skipped { stream: stream.clone(), after, through, reason, at: time(5) }),
        bounds: Totals { events: 9, bytes: 9_999, conflicts: 9 },
        ..Settlement::default()
    };
    let settled = store.settle(Arc::new(settlement)).await.unwrap();
    assert!(matches!(settled, Settled::Applied { .. }), "{settled:?}");
    let decided = Resolution { reason: "sent by a test machine".to_owned(), at: time(6) };
    assert!(store.resolve(&conflict("another"), Some(decided)).await.unwrap());
    let rejected = Rejected {
        source: "visits".to_owned(),
        reason: "it is no JSON".to_owned(),
        since: time(7),
        attributes: [("a.$b".to_owned(), "c".to_owned())].into(),
        content: vec![0, 255],
    };
    store.reject(vec![rejected]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_for_the_sequencer() {
    let store = REPLICA_SET.store(Mongo::options()).await;
    settle(&store).await;
    let mut text = String::new();
    for collection in ["meta", "heads", "events", "held", "sequences", "conflicts", "skipped", "rejected"] {
        let collection = format!("leftfold.{collection}");
        let documents = all(&store, &collection).await;
        text.extend([&*collection, "\n", &lines(&documents), "\n\n"]);
    }
    insta::assert_snapshot!(text);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_on_a_standalone_server() {
    let documents = STANDALONE.store(Mongo::options()).await;
    visits(SplitStore { log: Memory::default(), documents: documents.clone() }).await;
    insta::assert_snapshot!(lines(&all(&documents, "leftfold.docs.visitors").await));
}

#[tokio::test(flavor = "multi_thread")]
async fn people_query_documents_as_they_always_did() {
    let store = REPLICA_SET.store(Mongo::options()).await;
    visits(store.clone()).await;
    let visitors = store.database().collection::<Visitor>("visitors");
    let since = doc! { "since": { "$gte": DateTime::from_millis(BEGAN) }, "pages": "/" };
    let ann = visitors.find_one(since).await.unwrap().unwrap();
    assert_eq!(ann.since, Some(DateTime::from_millis(BEGAN)));
    assert_eq!(visitors.count_documents(doc! {}).await.unwrap(), 2, "bob is gone, cid is parked and there");
    assert!(visitors.delete_many(doc! {}).await.is_err(), "a view is not written to");
}

/// Collects the stages of a query plan, from the outermost on.
fn stages(plan: &Document, found: &mut Vec<String>) {
    for (key, value) in plan {
        match value {
            Bson::String(stage) if key == "stage" => found.push(stage.clone()),
            Bson::Document(inner) if key != "serverParameters" && key != "command" => stages(inner, found),
            Bson::Array(inner) => {
                inner.iter().filter_map(Bson::as_document).for_each(|inner| stages(inner, found));
            }
            _ => {}
        }
    }
}

async fn plan(store: &Mongo, command: Document) -> Vec<String> {
    let explain = doc! { "explain": command, "verbosity": "queryPlanner" };
    let mut found = Vec::new();
    stages(&store.database().run_command(explain).await.unwrap(), &mut found);
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_searched_without_an_index() {
    let store = REPLICA_SET.store(Mongo::options()).await;
    visits(store.clone()).await;
    let revisions = doc! { "aggregate": "leftfold.events", "cursor": {}, "pipeline": [
        { "$match": { "stream": { "$in": ["ann", "bob", "none"] } } },
        { "$sort": { "stream": 1, "revision": -1 } },
        { "$group": { "_id": "$stream", "revision": { "$first": "$revision" } } },
    ] };
    let found = plan(&store, revisions).await;
    assert!(found.contains(&"DISTINCT_SCAN".to_owned()), "{found:?}");
    let stream = doc! { "find": "leftfold.events", "filter": { "stream": "ann", "revision": { "$gt": 1_i64 } },
    "sort": { "stream": 1, "revision": 1 }, "hint": "leftfold_stream_revision" };
    let found = plan(&store, stream).await;
    assert!(!found.contains(&"SORT".to_owned()) && found.contains(&"IXSCAN".to_owned()), "{found:?}");
    let parked = doc! { "find": "leftfold.docs.visitors", "filter": { "_fold.parked": { "$exists": true } } };
    let found = plan(&store, parked).await;
    assert!(found.contains(&"IXSCAN".to_owned()), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_the_sequencer_keeps_is_searched_without_an_index() {
    let store = REPLICA_SET.store(Mongo::options()).await;
    settle(&store).await;
    let sorted = [
        doc! { "find": "leftfold.held", "filter": { "_id.stream": { "$in": ["ann", "bob"] } },
        "sort": { "_id.stream": 1, "_id.revision": 1 }, "hint": "leftfold_held" },
        doc! { "aggregate": "leftfold.held", "cursor": {}, "pipeline": [
            { "$match": { "_id.stream": "ann" } },
            { "$sort": { "_id.stream": 1, "_id.revision": 1 } }, { "$limit": 3 },
        ] },
        doc! { "find": "leftfold.sequences", "filter": { "events": { "$gt": 0 }, "_id": { "$gt": "" } },
        "sort": { "_id": 1 }, "hint": "leftfold_waiting" },
        doc! { "find": "leftfold.sequences", "filter": { "$or": [
            { "events": { "$gt": 0 }, "since": { "$lte": 9_i64 },
              "$or": [{ "ask_at": { "$lte": 9_i64 } }, { "ask_at": { "$gt": 99_i64 } }] },
            { "events": { "$gt": 0 }, "since": { "$gt": 99_i64 },
              "$or": [{ "ask_at": { "$lte": 9_i64 } }, { "ask_at": { "$gt": 99_i64 } }] },
        ] },
        "sort": { "since": 1, "_id": 1 }, "hint": "leftfold_overdue" },
        doc! { "find": "leftfold.conflicts", "filter": { "open": true }, "sort": { "_id": 1 },
        "hint": "leftfold_open" },
        doc! { "find": "leftfold.events", "hint": "leftfold_stream_revision", "filter": { "$or": [
            { "stream": "ann", "revision": { "$in": [1_i64, 2_i64] } },
            { "stream": "bob", "revision": { "$in": [3_i64] } },
        ] } },
    ];
    for query in sorted {
        let found = plan(&store, query.clone()).await;
        assert!(!found.contains(&"SORT".to_owned()), "{query}: {found:?}");
        assert!(found.contains(&"IXSCAN".to_owned()), "{query}: {found:?}");
    }
}
