//! Posted events that are refused.

use std::sync::Arc;

use leftfold::sequence::{HoldingLimits, MAX_REJECTED, Rejected};
use leftfold::testing::bad_json;
use leftfold::{Kind, Memory, Policy, Sequencer, Sequences, System};
use leftfold_sources::http::{Ingest, router};
use leftfold_sources::{Mapping, Message};
use serde_json::json;

use crate::client::{BATCH, Reply, STRUCTURED, batch, on_memory, post, send, serve, text};
use crate::common::{self, assert_right, event, event_with, poison, story};
use crate::faulty::{Fault, Faulty};

fn assert_problem(reply: &Reply, status: u16, kind: &str, detail: &str) {
    let Reply { head, body, .. } = reply;
    assert_eq!(reply.status, status, "{head}\n{body}");
    assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{head}");
    assert_eq!(
        (&body["status"], &body["type"]),
        (&json!(status), &json!(format!("urn:leftfold:problem:{kind}")))
    );
    assert!(body["detail"].as_str().unwrap().contains(detail), "{body}");
    assert!(body["title"].is_string());
}

#[tokio::test]
async fn invalid_requests_are_answered_with_problems() {
    let store = Memory::default();
    let ingest = Ingest::new(Sequencer::new(store.clone()), Mapping::default(), Policy::Contiguous);
    let address = serve(ingest.max_bytes(2_000).max_events(5).router("/")).await;
    for poison in poison() {
        let reply = post(address, STRUCTURED, &poison.content).await;
        assert_problem(&reply, 400, "invalid-event", ": expected ");
    }
    let no_subject = post(address, STRUCTURED, text(&event(1, 1)).replace("subject", "subjekt")).await;
    assert_problem(
        &no_subject,
        400,
        "invalid-event",
        "\"subject\": expected a value: the name of the stream",
    );
    assert_problem(
        &post(address, BATCH, r#"{"a":1}"#).await,
        400,
        "unreadable-body",
        "a JSON array of events",
    );
    assert_problem(&post(address, BATCH, "[1,").await, 400, "unreadable-body", "EOF");
    assert_problem(
        &post(address, STRUCTURED, "x".repeat(2_001)).await,
        413,
        "too-large",
        "larger than 2000 bytes",
    );
    assert_problem(&post(address, BATCH, "[1,1,1,1,1,1]").await, 413, "too-large", "6 events");
    let plain = post(address, "application/json", text(&event(1, 1))).await;
    assert_problem(&plain, 415, "unsupported-type", "application/json");
    assert!(plain.header("accept-post").unwrap().contains(BATCH));
    assert_problem(&send(address, "POST", &[], b"{}").await, 415, "unsupported-type", "");
    assert_problem(&send(address, "GET", &[], b"").await, 405, "method-not-allowed", "");
    assert_eq!(common::count(&store).await, 0);
    assert!(store.rejected(None, 10).await.unwrap().is_empty(), "who was told keeps it");
}

#[tokio::test]
async fn refused_events_come_with_the_time_to_retry() {
    let store = Memory::default();
    let limits = HoldingLimits { stream_events: 2, ..HoldingLimits::default() };
    let sequencer = Sequencer::with(store.clone(), limits, Arc::new(System));
    let address = serve(router(sequencer, Mapping::default(), Policy::Contiguous)).await;
    let messages: Vec<_> =
        (2..=4).map(|number| event(1, number)).chain(story(2, 1).into_iter().skip(1)).collect();
    let reply = post(address, BATCH, batch(&messages)).await;
    assert_problem(&reply, 429, "full", "1 of 4 events were refused; send them again in 5 seconds");
    assert_eq!(reply.header("retry-after"), Some("5"));
    let answers: Vec<_> = reply.body["answers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|told| told["answer"].as_str().unwrap())
        .collect();
    assert_eq!(answers, ["held", "held", "refused", "appended"]);
    let one = post(address, STRUCTURED, text(&event(1, 4))).await;
    assert_problem(&one, 429, "full", "1 of 1");
    assert_eq!(post(address, STRUCTURED, text(&event(1, 1))).await.status, 200);
    assert_eq!(post(address, STRUCTURED, text(&event(1, 4))).await.status, 200);

    let filler = |number: u64| Rejected {
        source: "elsewhere".into(),
        reason: "it fills the list".into(),
        since: "2026-01-01T00:00:00Z".parse().unwrap(),
        attributes: [].into(),
        content: number.to_le_bytes().into(),
    };
    store.reject((0..MAX_REJECTED).map(filler).collect()).await.unwrap();
    let reply = post(address, BATCH, batch(&[Message::new("{}"), event(2, 2)])).await;
    assert_problem(&reply, 429, "full", "1 of 2");
    assert_eq!(
        (&reply.body["answers"][0]["answer"], &reply.body["answers"][1]["answer"]),
        (&json!("refused"), &json!("appended"))
    );
}

#[tokio::test]
async fn an_unavailable_store_is_not_the_fault_of_the_event() {
    let store = Faulty::default();
    let address = serve(router(Sequencer::new(store.clone()), Mapping::default(), Policy::Contiguous)).await;
    store.settle.lock().unwrap().extend([Fault::Before(Kind::Unavailable), Fault::Before(Kind::Unavailable)]);
    let reply = post(address, STRUCTURED, text(&event(1, 1))).await;
    assert_problem(&reply, 503, "store-unavailable", "the store fails");
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_problem(
        &post(address, BATCH, batch(&story(1, 2))).await,
        503,
        "store-unavailable",
        "the store fails",
    );
    store.settle.lock().unwrap().push_back(Fault::After);
    assert_eq!(post(address, BATCH, batch(&story(1, 2))).await.status, 503);
    store.reject.lock().unwrap().push_back(Fault::Before(Kind::Unavailable));
    assert_eq!(post(address, BATCH, batch(&[Message::new("{}")])).await.status, 503);
    let again = post(address, BATCH, batch(&story(1, 2))).await;
    assert_eq!((again.status, &again.body[0]["answer"]), (200, &json!("duplicate")));
    store.settle.lock().unwrap().push_back(Fault::Before(Kind::Format));
    assert_problem(
        &post(address, STRUCTURED, text(&event(1, 3))).await,
        500,
        "store-failed",
        "the store fails",
    );
}

/// The route refuses the same JSON as the log does, in each mode, and accepts valid events beside
/// it.
#[tokio::test]
async fn posted_json_that_breaks_a_rule_is_refused() {
    let (address, store) = on_memory().await;
    for (bad, number) in bad_json().into_iter().zip(1..) {
        let structured = event_with("bad", 1, &bad.text);
        assert_problem(&post(address, STRUCTURED, text(&structured)).await, 400, "invalid-event", bad.reason);
        let binary = [
            ("ce-specversion", "1.0"),
            ("ce-id", "b"),
            ("ce-source", "/"),
            ("ce-type", "t"),
            ("ce-subject", "bad"),
            ("ce-sequence", "1"),
        ];
        let reply = send(address, "POST", &binary, bad.text.as_bytes()).await;
        assert_problem(&reply, 400, "invalid-event", bad.reason);
        let reply = post(address, BATCH, batch(&[structured, event(1, number)])).await;
        assert_eq!((reply.status, &reply.body[0]["answer"]), (200, &json!("rejected")), "{}", bad.name);
        assert!(bad.is_described_by(reply.body[0]["why"].as_str().unwrap()), "{}", reply.body);
        assert_eq!(reply.body[1]["answer"], "appended", "{}", bad.name);
    }
    assert_right(&store, 1, bad_json().len() as u64).await;
    assert_eq!(common::count(&store).await, bad_json().len() as u64, "nothing else is in the log");
}
