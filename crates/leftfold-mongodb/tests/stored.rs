//! What is stored, field by field: others read it, and later versions must. And that MongoDB finds what is asked for
//! through the indexes that were made for it.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use bson::{Bson, DateTime, Document, doc};
use common::{REPLICA_SET, STANDALONE};
use leftfold::{Apart, Event, Expected, Leftfold, Memory, NewEvent, Projection, Store, fold};
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

/// A document with a type of BSON's own in it.
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

/// Visits of three: one looks, one leaves, one stumbles.
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

/// Everything in a collection, by id, without what is different each time.
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
            if document.contains_key(field) {
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

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_on_a_standalone_server() {
    let documents = STANDALONE.store(Mongo::options()).await;
    visits(Apart { log: Memory::default(), documents: documents.clone() }).await;
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

/// The stages of a plan, from the outermost on.
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
