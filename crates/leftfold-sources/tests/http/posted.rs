//! Posted events that are accepted.

use leftfold::{Memory, Policy, Sequencer, Sequences};
use leftfold_sources::http::router;
use leftfold_sources::{Mapping, Message, Place};
use leftfold_sqlite::Sqlite;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::client::{BATCH, STRUCTURED, batch, on_memory, post, send, serve, text};
use crate::common::{assert_right, event, rejected, shuffled, story};

#[tokio::test]
async fn each_event_gets_its_answer() {
    let (address, store) = on_memory().await;
    let first = post(address, "application/cloudevents+json; charset=utf-8", text(&event(1, 1))).await;
    assert_eq!(
        (first.status, first.body),
        (200, json!({ "answer": "appended", "bookmark": "0:1:1:cart-1" }))
    );
    assert_eq!(first.head.to_lowercase().matches("content-type: application/json").count(), 1);
    let again = post(address, STRUCTURED, text(&event(1, 1))).await;
    assert_eq!(
        (again.status, again.body),
        (200, json!({ "answer": "duplicate", "bookmark": "0:1:1:cart-1" }))
    );
    let early = post(address, STRUCTURED, text(&event(1, 3))).await;
    assert_eq!((early.status, early.body), (200, json!({ "answer": "held", "waiting_for": 2 })));
    let other = text(&event(1, 1)).replace(r#""number":1"#, r#""number":99"#);
    let conflict = post(address, STRUCTURED, other).await;
    assert_eq!((conflict.status, &conflict.body["answer"]), (200, &json!("conflict")));
    assert!(conflict.body["why"].as_str().unwrap().contains("another event with this revision"));

    let binary = [
        ("Content-Type", "application/json"),
        ("ce-specversion", "1.0"),
        ("CE-ID", "e-1-2"),
        ("ce-source", "/shop"),
        ("ce-type", "added"),
        ("ce-subject", "cart%2D1"),
        ("ce-sequence", "2"),
    ];
    let closing = send(address, "POST", &binary, br#"{"number":2}"#).await;
    assert_eq!(
        (closing.status, closing.body),
        (200, json!({ "answer": "appended", "bookmark": "0:2:2:cart-1" }))
    );
    let same = post(address, STRUCTURED, text(&event(1, 2))).await;
    assert_eq!(same.body["answer"], "duplicate", "it is the same in structured mode");
    let conflicts = store.conflicts(None, 10).await.unwrap();
    store.resolve(&conflicts[0], None).await.unwrap();
    assert_right(&store, 1, 3).await;
}

#[tokio::test]
async fn a_batch_is_answered_event_by_event_and_invalid_events_are_kept() {
    let (address, store) = on_memory().await;
    let mut messages = story(2, 3);
    messages.insert(2, Message::new(r#"{"specversion":"1.0","id":"x"}"#));
    let reply = post(address, BATCH, batch(&messages)).await;
    assert_eq!(reply.status, 200);
    let answers: Vec<_> =
        reply.body.as_array().unwrap().iter().map(|told| told["answer"].as_str().unwrap()).collect();
    assert_eq!(answers, ["appended", "appended", "rejected", "appended", "appended", "appended", "appended"]);
    let kept = store.rejected(None, 10).await.unwrap();
    assert_eq!(reply.body[2]["id"], kept[0].id());
    assert_eq!(reply.body[2]["why"], kept[0].reason);
    assert_eq!((&kept[0].source[..], &kept[0].content[..]), ("http", &messages[2].content[..]));

    let lines: Vec<_> =
        (4..=6).rev().flat_map(|number| [text(&event(1, number)), text(&event(2, number))]).collect();
    let lines = format!("{}\r\n\nnot json\n{{\"cut\":", lines.join("\n"));
    let reply = post(address, "application/x-ndjson", lines).await;
    let answers = reply.body.as_array().unwrap().iter().map(|told| told["answer"].as_str().unwrap());
    assert_eq!(reply.status, 200, "{:?}", reply.body);
    assert_eq!(answers.filter(|answer| *answer == "rejected").count(), 2);
    assert_right(&store, 2, 6).await;
    assert_eq!(rejected(&store).await.len(), 3);
    assert_eq!(post(address, BATCH, "[]").await.body, json!([]));
}

#[tokio::test]
async fn messages_of_another_shape_are_mapped() {
    let store = Memory::default();
    let mapping = Mapping::fields(Place::attribute("x-cart"))
        .revision(Place::field("/v").unwrap())
        .kind(Place::value("added"));
    let address = serve(router(Sequencer::new(store.clone()), mapping.into(), Policy::Contiguous)).await;
    let headers = [("content-type", "application/json"), ("X-Cart", "cart-1"), ("authorization", "secret")];
    let reply = send(address, "POST", &headers, br#"{"v":1,"number":1}"#).await;
    assert_eq!(reply.body, json!({ "answer": "appended", "bookmark": "0:1:1:cart-1" }));
    assert_right(&store, 1, 1).await;
}

/// The whole way on SQLite, with several concurrent senders that send everything twice and cut
/// connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_posts_to_documents() {
    let directory = tempfile::tempdir().unwrap();
    let store = Sqlite::open(directory.path().join("shop.db")).await.unwrap();
    let address = serve(router(Sequencer::new(store.clone()), Mapping::default(), Policy::Contiguous)).await;
    let mut senders = tokio::task::JoinSet::new();
    for seed in 0..4 {
        senders.spawn(async move {
            for part in shuffled(story(5, 50), 40, seed).chunks(25) {
                let body = batch(part);
                let head = format!(
                    "POST / HTTP/1.1\r\nhost: x\r\ncontent-type: {BATCH}\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                let mut broken = TcpStream::connect(address).await.unwrap();
                broken.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
                drop(broken);
                assert_eq!(post(address, BATCH, body).await.status, 200);
            }
        });
    }
    while let Some(sent) = senders.join_next().await {
        sent.unwrap();
    }
    assert_right(&store, 5, 50).await;
}
