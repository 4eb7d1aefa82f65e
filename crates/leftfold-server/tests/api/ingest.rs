//! Posted events: order, duplicates, repeated requests, invalid JSON.

use leftfold::{Leftfold, Memory};
use leftfold_server::Service;
use serde_json::{Value, json};

use crate::client::{added, get, opened, post, send, shop};

#[tokio::test]
async fn posted_cloud_events_are_put_in_order() {
    let (router, _) = shop(Vec::new()).await;
    let event = |revision: u64, event: Value| {
        json!({
            "specversion": "1.0", "id": format!("e{revision}"), "source": "shop", "subject": "cart-1",
            "type": event["type"], "data": event["data"], "sequence": revision.to_string(),
        })
    };
    let batch = json!([event(2, added(2)), event(1, opened()), event(2, added(2))]).to_string();
    let kind = [("content-type", "application/cloudevents-batch+json")];
    let answers = send(&router, "POST", "/events", &kind, &batch).await.is(200);
    assert_eq!(answers.as_array().unwrap().len(), 3, "{answers}");
    let events = get(&router, "/log").await.is(200);
    assert_eq!(events["events"].as_array().unwrap().len(), 2, "{events}");
    let after = events["after"].as_str().unwrap();
    let waiting = get(&router, &format!("/log?after={after}&wait=10ms")).await.is(200);
    assert_eq!(waiting["events"], json!([]));
    let metrics = get(&router, "/metrics").await;
    assert!(metrics.text.contains("leftfold_deliveries_total{became=\"duplicates\"} 1"), "{}", metrics.text);
}

/// The first response is repeated, even if another one would be given now.
#[tokio::test]
async fn posted_events_with_a_key_are_ingested_once() {
    let (router, _) = shop(Vec::new()).await;
    let event = |revision: u64| {
        json!({
            "specversion": "1.0", "id": format!("e{revision}"), "source": "shop", "subject": "cart-1",
            "type": "shopping-cart-opened", "data": { "clientId": "ann" }, "sequence": revision,
        })
    };
    let post = async |key: &str, revisions: &[u64]| {
        let batch = json!(revisions.iter().map(|revision| event(*revision)).collect::<Vec<_>>());
        let headers = [("content-type", "application/cloudevents-batch+json"), ("idempotency-key", key)];
        send(&router, "POST", "/events", &headers[..if key.is_empty() { 1 } else { 2 }], &batch.to_string())
            .await
    };
    let first = post("k1", &[2]).await;
    assert_eq!(first.is(200), json!([{ "answer": "held", "waiting_for": 1 }]));
    assert_eq!(post("k2", &[1]).await.is(200)[0]["answer"], "appended");
    let again = post("k1", &[2]).await;
    assert_eq!((again.status, &again.text), (200, &first.text));
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(post("", &[2]).await.is(200)[0]["answer"], "duplicate");
    assert_eq!(post("k1", &[3]).await.is(422)["type"], "urn:leftfold:problem:key-reused");
    // A refused request is not remembered.
    let kind = [("content-type", "application/cloudevents+json"), ("idempotency-key", "k3")];
    send(&router, "POST", "/events", &kind, "{}").await.is(400);
    assert_eq!(post("k3", &[3]).await.is(200)[0]["answer"], "appended");

    // In binary mode the headers are the event.
    let binary = async |id: &'static str, trace: &'static str| {
        let headers = [
            ("ce-specversion", "1.0"),
            ("ce-id", id),
            ("ce-source", "shop"),
            ("ce-subject", "cart-2"),
            ("ce-sequence", "1"),
            ("ce-type", "shopping-cart-opened"),
            ("traceparent", trace),
            ("idempotency-key", "k4"),
        ];
        send(&router, "POST", "/events", &headers, r#"{"clientId":"ann"}"#).await
    };
    let first = binary("b1", "1").await;
    assert_eq!(first.is(200)["answer"], "appended");
    assert_eq!(binary("b1", "2").await.text, first.text);
    binary("b2", "3").await.is(422);
}

/// The outcomes of many events are too large to keep, so they are determined again.
#[tokio::test]
async fn a_large_batch_with_a_key_gets_its_current_outcomes() {
    let app = Leftfold::on(Memory::default()).start().await.unwrap();
    let (router, _) = Service::new(app).await.unwrap().router();
    let line = |revision: u64| {
        let event = json!({
            "specversion": "1.0", "id": format!("e{revision}"), "source": "shop", "subject": "cart-1",
            "type": "noted", "sequence": revision,
        });
        format!("{event}\n")
    };
    let batch: String = (1..=2_000).map(line).collect();
    let headers = [("content-type", "application/x-ndjson"), ("idempotency-key", "k")];
    let first = send(&router, "POST", "/events", &headers, &batch).await;
    assert!(first.text.len() > 64 << 10, "{}", first.text.len());
    let again = send(&router, "POST", "/events", &headers, &batch).await.is(200);
    for (first, again) in first.is(200).as_array().unwrap().iter().zip(again.as_array().unwrap()) {
        assert_eq!((&first["answer"], &again["answer"]), (&json!("appended"), &json!("duplicate")));
        assert_eq!(first["bookmark"], again["bookmark"]);
    }
    assert_eq!(again.as_array().unwrap().len(), 2_000);
    send(&router, "POST", "/events", &headers, &line(2_001)).await.is(422);
}

/// Each endpoint refuses the same JSON, with the path and the reason, and a well-behaved client
/// beside it is served.
#[tokio::test]
async fn json_that_breaks_a_rule_is_refused_whichever_way_it_comes() {
    let (router, _) = shop(Vec::new()).await;
    for bad in leftfold::testing::bad_json() {
        let data = &bad.text;
        let posted = format!(r#"{{"type":"a","data":{data}}}"#);
        let event = format!(
            r#"{{"specversion":"1.0","id":"a","source":"s","subject":"bad","sequence":"1","type":"t","data":{data}}}"#
        );
        let good = event.replace(data, "{}").replace("bad", "good");
        let binary = [
            ("ce-specversion", "1.0"),
            ("ce-id", "a"),
            ("ce-source", "s"),
            ("ce-subject", "bad"),
            ("ce-sequence", "1"),
            ("ce-type", "t"),
        ];
        let typed = |kind| [("content-type", kind)];
        let attempts = [
            send(&router, "POST", "/streams/bad", &typed("application/json"), &posted).await,
            send(&router, "POST", "/streams/bad", &typed("application/json"), &format!("[{posted}]")).await,
            send(&router, "POST", "/events", &typed("application/cloudevents+json"), &event).await,
            send(
                &router,
                "POST",
                "/events",
                &typed("application/cloudevents-batch+json"),
                &format!("[{event}]"),
            )
            .await,
            send(&router, "POST", "/events", &typed("application/x-ndjson"), &format!("{good}\n{event}\n"))
                .await,
            send(&router, "POST", "/events", &binary, data).await,
        ];
        for (answer, number) in attempts.iter().zip(0..) {
            let refused = answer.is(400);
            let detail = refused["detail"].as_str().unwrap();
            assert!(bad.is_described_by(detail), "{}, {number}: {detail}", bad.name);
        }
        assert_eq!(get(&router, "/healthz").await.status, 200);
    }
    for stream in ["bad", "good"] {
        assert_eq!(
            get(&router, &format!("/streams/{stream}")).await.is(200)["events"],
            json!([]),
            "{stream}"
        );
    }
    // Two content types, where one reader takes the first and another the last: nothing gets in
    // unchecked.
    let lines = "[{\"specversion\":\"1.0\",\"id\":\"a\",\"source\":\"s\",\"subject\":\"bad\",\"sequence\":\"1\",\"type\":\"t\",\n\"data\":1e999}]";
    for kinds in [
        ["application/x-ndjson", "application/cloudevents-batch+json"],
        ["text/plain", "application/cloudevents-batch+json"],
    ] {
        send(&router, "POST", "/events", &kinds.map(|kind| ("content-type", kind)), lines).await;
        assert_eq!(get(&router, "/streams/bad").await.is(200)["events"], json!([]), "{kinds:?}");
    }
    post(&router, "/streams/cart-1", &json!([opened()])).await.is(201);
}
