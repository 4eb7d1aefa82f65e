//! One document never blocks another: not by its size, depth, id or bytes, nor by its handler's
//! result.
//!
//! In an earlier version, a 13 MB document made a task that MongoDB refused, and a document with
//! invalid UTF-8 could not be read. The reactor retried the whole batch forever, and no reaction to
//! that collection ran any more.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::raw::cstr;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, RawDocumentBuf, doc};
use common::{REPLICA_SET, soon};
use leftfold::DocumentId;
use leftfold::react::{Filter, Query, Reaction, Reactor, ReactorHandle, Retry, State, Task};
use leftfold_mongodb::Mongo;
use serde::Deserialize;

#[derive(Deserialize)]
struct Order {
    status: String,
}

type Handled = Arc<Mutex<BTreeSet<String>>>;

fn paid(id: impl Into<Bson>, more: impl Into<Bson>) -> Document {
    doc! { "_id": id, "status": "paid", "more": more }
}

/// Builds nested objects.
fn nested(depth: usize) -> Document {
    (0..depth).fold(doc! {}, |inner, _| doc! { "a": inner })
}

/// Builds a document with invalid UTF-8, which servers accept.
fn garbled(id: &str) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("_id"), id);
    document.append(cstr!("status"), "paid");
    document.append(cstr!("text"), "????");
    let mut bytes = document.into_bytes();
    let at = bytes.windows(4).position(|four| four == b"????").unwrap();
    bytes[at] = 0xff;
    RawDocumentBuf::from_bytes(bytes).unwrap()
}

/// Builds a reaction that records the ids of its documents.
fn noting(handled: &Handled, name: &str, narrow: bool) -> Reaction {
    let handled = Arc::clone(handled);
    let draft = Reaction::on_plain::<Order>("orders", name);
    let draft = if narrow {
        let filter: Filter = r#"{"status":"paid"}"#.parse().unwrap();
        draft.filter(filter).watch(|order| order.status.clone())
    } else {
        draft
    };
    draft.run(move |ctx| {
        let handled = Arc::clone(&handled);
        async move {
            ctx.document().await?;
            handled.lock().unwrap().insert(ctx.id().to_string());
            Ok(())
        }
    })
}

async fn task(reacting: &ReactorHandle<Mongo>, reaction: &str, id: &str) -> Task {
    let query = Query {
        reaction: Some(reaction.to_owned()),
        document: Some(DocumentId::new(id).unwrap()),
        ..Query::default()
    };
    reacting.tasks(query, None, 1).await.unwrap().pop().expect(id)
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_document_is_others_are_handled() {
    let store = REPLICA_SET.store(Mongo::options()).await;
    let orders = store.database().collection::<Document>("orders");
    let binary = |bytes: usize| Binary { subtype: BinarySubtype::Generic, bytes: vec![0; bytes] };
    orders.insert_one(paid("a-binary", binary(13_000_000))).await.unwrap();
    let (all, narrow) = (Handled::default(), Handled::default());
    let reactor = Reactor::on(store.clone()).worker("one").reaction(noting(&all, "all", false));
    let reacting = reactor.reaction(noting(&narrow, "narrow", true)).start().await.unwrap();
    // The comparison finds some documents, and the feed the others.
    orders.insert_one(paid("b-lines", "\n".repeat(9_000_000))).await.unwrap();
    orders.insert_one(paid("c-deep", nested(130))).await.unwrap();
    orders.insert_one(paid(Bson::MaxKey, 1)).await.unwrap();
    store.database().collection::<RawDocumentBuf>("orders").insert_one(garbled("d-garbled")).await.unwrap();
    orders.insert_one(paid("e-healthy", 1)).await.unwrap();
    soon(reacting.idle()).await.unwrap();

    let expected = ["a-binary", "b-lines", "c-deep", "e-healthy", r#"{"$maxKey":1}"#];
    let expected: BTreeSet<_> = expected.into_iter().map(str::to_owned).collect();
    assert_eq!(*all.lock().unwrap(), expected);
    assert_eq!(*narrow.lock().unwrap(), expected);
    for reaction in ["all", "narrow"] {
        let task = task(&reacting, reaction, "d-garbled").await;
        let error = task.error.unwrap();
        assert!(task.state == State::Failed && error.contains("can't be read"), "{error}");
    }
    let kept = task(&reacting, "all", "a-binary").await.watched;
    assert!(kept.as_str().len() < 200, "{kept:?}");

    // A change is detected even if only a hash is stored, and a repaired document is handled.
    all.lock().unwrap().clear();
    orders.replace_one(doc! { "_id": "a-binary" }, paid("a-binary", binary(13_000_001))).await.unwrap();
    orders.replace_one(doc! { "_id": "d-garbled" }, paid("d-garbled", 1)).await.unwrap();
    orders.update_one(doc! { "_id": "b-lines" }, doc! { "$set": { "status": "paid" } }).await.unwrap();
    soon(reacting.idle()).await.unwrap();
    assert_eq!(*all.lock().unwrap(), ["a-binary", "d-garbled"].map(str::to_owned).into());
    assert!(narrow.lock().unwrap().contains("d-garbled"));
    reacting.stop(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_error_is_cut() {
    let store = REPLICA_SET.store(Mongo::options()).await;
    let orders = store.database().collection::<Document>("orders");
    let handled = Handled::default();
    let failing = Reaction::on_plain::<Order>("orders", "failing")
        .retry(Retry::fixed(Duration::from_millis(1)).attempts(6))
        .run(async |_| Err(format!("begin{}end", "ü".repeat(1_500_000)).into()));
    let reactor = Reactor::on(store.clone()).worker("one").reaction(failing);
    let reacting = reactor.reaction(noting(&handled, "other", false)).start().await.unwrap();
    orders.insert_many([paid("a", 1), paid("b", 1)]).await.unwrap();
    soon(reacting.idle_within(Duration::from_secs(1))).await.unwrap();
    for id in ["a", "b"] {
        let task = task(&reacting, "failing", id).await;
        let error = task.error.unwrap();
        assert_eq!((task.state, task.attempts, task.history.len()), (State::Failed, 6, 5));
        assert!(
            error.len() < 9_000 && error.starts_with("begin") && error.ends_with("end"),
            "{}",
            error.len()
        );
    }
    assert_eq!(handled.lock().unwrap().len(), 2);
    reacting.stop(Duration::from_secs(5)).await;
}
