//! The API as a client sees it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use leftfold::{Expected, Json, Leftfold, Memory, NewEvent};
use leftfold_server::{Scope, ServerLimits, Service, Stop, Token};
use serde_json::{Value, json};
use shopping_cart::{CartDetails, ClientSummary};
use tower::ServiceExt as _;

/// Returns a server for a shop.
async fn shop(tokens: Vec<Token>) -> (Router, Stop) {
    let app = Leftfold::on(Memory::default()).projection(CartDetails).projection(ClientSummary);
    let service = Service::new(app.start().await.unwrap()).await.unwrap();
    service.tokens(tokens).limits(ServerLimits { body: 10_000 }).router()
}

struct Answer {
    status: u16,
    headers: axum::http::HeaderMap,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    #[track_caller]
    fn is(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        if status >= 400 {
            assert_eq!(self.headers["content-type"], "application/problem+json");
            let problem = self.json();
            assert_eq!(problem["status"], status);
            assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{problem}");
        }
        if self.text.is_empty() { Value::Null } else { self.json() }
    }
}

async fn send(router: &Router, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response: Response<Body> =
        router.clone().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    Answer { status: parts.status.as_u16(), headers: parts.headers, text }
}

async fn get(router: &Router, path: &str) -> Answer {
    send(router, "GET", path, &[], "").await
}

async fn post(router: &Router, path: &str, body: &Value) -> Answer {
    send(router, "POST", path, &[("content-type", "application/json")], &body.to_string()).await
}

fn opened() -> Value {
    json!({ "type": "shopping-cart-opened", "data": { "clientId": "ann" } })
}

fn added(quantity: u32) -> Value {
    let data = json!({ "productId": "shoes", "name": "Shoes", "quantity": quantity, "unitPrice": 4900 });
    json!({ "type": "product-item-added", "data": data })
}

#[tokio::test]
async fn what_is_appended_is_read_back_as_a_document() {
    let (router, _) = shop(Vec::new()).await;
    let first = post(&router, "/streams/cart-1?expected=0", &json!([opened(), added(2)])).await.is(201);
    assert_eq!((&first["revision"], &first["events"]), (&json!(2), &json!(2)));
    let second = post(&router, "/streams/cart-1?expected=2", &added(1)).await.is(201);
    let token = second["bookmark"].as_str().unwrap();
    let read = get(&router, &format!("/collections/cart_details/documents/cart-1?at_least={token}")).await;
    assert_eq!(read.is(200)["items"]["shoes"]["quantity"], 3);

    let tag = read.headers["etag"].to_str().unwrap();
    let path = "/collections/cart_details/documents/cart-1";
    for known in [tag.to_owned(), format!("\"other\", W/{tag}"), "*".to_owned()] {
        let again = send(&router, "GET", path, &[("if-none-match", &known)], "").await;
        assert_eq!(
            (again.status, again.text.as_str(), &again.headers["etag"]),
            (304, "", &read.headers["etag"])
        );
    }
    send(&router, "GET", path, &[("if-none-match", "\"other\"")], "").await.is(200);

    assert_eq!(get(&router, &format!("{path}?at=2")).await.is(200)["items"]["shoes"]["quantity"], 2);
    assert_eq!(get(&router, &format!("{path}?at=1")).await.is(200)["items"], json!({}));
    get(&router, &format!("{path}?at=0")).await.is(404);
    get(&router, &format!("{path}?at=2020-01-01T00:00:00Z")).await.is(404);
    get(&router, &format!("{path}?at=yesterday")).await.is(400);

    let events = get(&router, "/streams/cart-1?after=1&limit=1").await.is(200);
    assert_eq!(events["events"].as_array().unwrap().len(), 1);
    assert_eq!(events["events"][0]["revision"], 2);
    let explained = get(&router, &format!("{path}/explanation")).await.is(200);
    assert_eq!(explained["events"].as_array().unwrap().len(), 3);
    let explained = get(&router, &format!("{path}/explanation?at=cart-1@2")).await.is(200);
    assert_eq!(explained["events"].as_array().unwrap().len(), 2);
    assert!(explained.get("next").is_none(), "{explained}");
    let (mut parts, mut next) = (Vec::new(), String::new());
    loop {
        let part = get(&router, &format!("{path}/explanation?limit=1{next}")).await.is(200);
        parts.extend(part["events"].as_array().unwrap().clone());
        let Some(cursor) = part["next"].as_str() else { break };
        next = format!("&after={cursor}");
    }
    assert_eq!(json!(parts), get(&router, &format!("{path}/explanation")).await.is(200)["events"]);
    get(&router, &format!("{path}/explanation?after=here")).await.is(400);
    get(&router, &format!("{path}/explanation?limit=0")).await.is(400);
    get(&router, "/collections/cart_details/documents/cart-9/explanation").await.is(404);
    assert_eq!(get(&router, &format!("{path}/absence")).await.is(200)["reasons"][0]["why"], "there");
    let never = get(&router, "/collections/cart_details/documents/cart-9/absence").await.is(200);
    assert_eq!(never["reasons"][0]["why"], "never-routed");
    assert!(never["reasons"][0]["said"].as_str().unwrap().contains("no event"), "{never}");
}

#[tokio::test]
async fn a_repeated_append_is_one() {
    let (router, _) = shop(Vec::new()).await;
    let keyed = [("content-type", "application/json"), ("idempotency-key", "k1")];
    let body = json!([opened(), added(2)]).to_string();
    let first = send(&router, "POST", "/streams/cart-1", &keyed, &body).await.is(201);
    let again = send(&router, "POST", "/streams/cart-1", &keyed, &body).await.is(200);
    assert_eq!((&again["duplicate"], &again["bookmark"]), (&json!(true), &first["bookmark"]));
    let other = json!([opened(), added(3)]).to_string();
    send(&router, "POST", "/streams/cart-1", &keyed, &other).await.is(409);
    let refused = post(&router, "/streams/cart-1?expected=7", &added(1)).await.is(409);
    assert_eq!(
        (&refused["type"], &refused["revision"]),
        (&json!("urn:leftfold:problem:wrong-revision"), &json!(2))
    );
}

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

/// An operation has one table entry, and with it the same answers to a wrong method.
#[tokio::test]
async fn every_path_refuses_other_methods_alike() {
    let (router, _) = shop(Vec::new()).await;
    for (path, allowed) in [("/events", "POST"), ("/streams/a", "POST,GET,HEAD")] {
        let refused = send(&router, "DELETE", path, &[], "").await;
        assert!(refused.is(405)["detail"].as_str().unwrap().contains("/openapi.json"), "{path}");
        assert_eq!(refused.headers["allow"], allowed, "{path}");
    }
}

#[tokio::test]
async fn metrics_are_exported_for_prometheus() {
    let (router, _) = shop(Vec::new()).await;
    let broken = json!({ "type": "product-item-added", "data": {} });
    for (cart, event) in [("cart-1", opened()), ("cart-2", broken)] {
        let appended = post(&router, &format!("/streams/{cart}"), &event).await.is(201);
        let token = appended["bookmark"].as_str().unwrap();
        get(&router, &format!("/collections/cart_details/documents/{cart}?at_least={token}")).await;
    }
    let text = get(&router, "/metrics").await.text;
    let figure = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    };
    let of = |name: &str| figure(&format!("{name}{{projection=\"cart_details\"}}"));
    assert_eq!((of("leftfold_lag_events"), of("leftfold_lag_seconds")), (0.0, 0.0));
    assert_eq!((of("leftfold_events_folded_total"), of("leftfold_parked_documents")), (2.0, 1.0));
    assert!(of("leftfold_parked_oldest_seconds") > 0.0, "{text}");
    assert_eq!((of("leftfold_cache_misses_total"), of("leftfold_cache_hits_total")), (2.0, 0.0));
    assert_eq!((of("leftfold_batch_events_sum"), of("leftfold_batch_documents_sum")), (2.0, 2.0));
    let commits = of("leftfold_commit_seconds_count");
    let bucket = |le: &str| {
        figure(&format!("leftfold_commit_seconds_bucket{{projection=\"cart_details\",le=\"{le}\"}}"))
    };
    assert_eq!((bucket("+Inf"), bucket("0.0005") <= bucket("10")), (commits, true), "{text}");
    assert!(commits >= 1.0, "{text}");
    assert!(of("leftfold_commit_seconds_sum") > 0.0, "{text}");
    // Each metric has a type, and each family occurs once.
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let family =
            ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let kinds = [name, family].map(|name| text.matches(&format!("# TYPE {name} ")).count());
        assert!(kinds == [1, 1] || kinds == [0, 1], "{line}: {kinds:?}");
    }
}

#[tokio::test]
async fn a_long_poll_of_the_log_is_woken() {
    let (router, _) = shop(Vec::new()).await;
    let waiting = tokio::spawn({
        let router = router.clone();
        async move { get(&router, "/log?wait=60s").await.is(200) }
    });
    post(&router, "/streams/cart-1", &opened()).await.is(201);
    assert_eq!(waiting.await.unwrap()["events"].as_array().unwrap().len(), 1);
}

/// Returns the next message of a stream: its id, its kind and its data.
async fn message(body: &mut Body) -> Option<(String, String, Value)> {
    let frame = body.frame().await?.unwrap();
    let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_default().to_owned()
    };
    if field("event") == "leftfold-heartbeat" {
        return Box::pin(message(body)).await;
    }
    Some((field("id"), field("event"), serde_json::from_str(&field("data")).unwrap()))
}

async fn stream(router: &Router, path: &str, last: Option<&str>) -> Body {
    let mut request = Request::builder().uri(path).header("accept", "text/event-stream");
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response.into_body()
}

#[tokio::test]
async fn the_log_can_be_followed_and_taken_up_again() {
    let (router, stop) = shop(Vec::new()).await;
    post(&router, "/streams/cart-1", &json!([opened(), added(1)])).await.is(201);
    let mut following = stream(&router, "/log", None).await;
    let (place, kind, event) = message(&mut following).await.unwrap();
    assert_eq!((kind.as_str(), &event["stream"]), ("shopping-cart-opened", &json!("cart-1")));
    drop(following);
    let mut following = stream(&router, "/log", Some(&place)).await;
    assert_eq!(message(&mut following).await.unwrap().1, "product-item-added");
    post(&router, "/streams/cart-2", &opened()).await.is(201);
    assert_eq!(message(&mut following).await.unwrap().2["stream"], "cart-2");
    stop.stop();
    assert!(message(&mut following).await.is_none());
    get(&router, "/readyz").await.is(503);
}

#[tokio::test]
async fn changes_of_a_collection_can_be_watched() {
    let (router, _) = shop(Vec::new()).await;
    let mut watching = stream(&router, "/collections/cart_details/changes?after=0", None).await;
    post(&router, "/streams/cart-1", &json!([opened(), added(1)])).await.is(201);
    let (_, kind, changed) = message(&mut watching).await.unwrap();
    assert_eq!((kind.as_str(), &changed["id"]), ("changed", &json!("cart-1")));
    assert_eq!(changed["document"]["items"]["shoes"]["quantity"], 1);
}

#[tokio::test]
async fn documents_are_listed_and_filtered_in_pages() {
    let (router, _) = shop(Vec::new()).await;
    let mut token = String::new();
    for number in 0..25 {
        let events = json!([opened(), added(1 + number % 5)]);
        let answer = post(&router, &format!("/streams/cart-{number:02}"), &events).await.is(201);
        token = answer["bookmark"].as_str().unwrap().to_owned();
    }
    get(&router, &format!("/collections/cart_details/documents/cart-24?at_least={token}")).await.is(200);
    let filter = "%7B%22items.shoes.quantity%22%3A%7B%22%24gte%22%3A4%7D%7D"; // {"items.shoes.quantity":{"$gte":4}}
    for (query, expected) in [(String::new(), 25), (format!("&filter={filter}"), 10)] {
        let (mut found, mut after) = (BTreeSet::new(), String::new());
        loop {
            let page = get(&router, &format!("/collections/cart_details/documents?limit=4{after}{query}"))
                .await
                .is(200);
            let documents = page["documents"].as_array().unwrap();
            assert!(documents.len() <= 4);
            found.extend(documents.iter().map(|one| one["id"].as_str().unwrap().to_owned()));
            match page["after"].as_str() {
                Some(last) => after = format!("&after={last}"),
                None => break,
            }
        }
        assert_eq!(found.len(), expected, "{query}");
    }
    get(&router, "/collections/cart_details/documents?filter=%7B%22a%22%3A%7B%22%24near%22%3A1%7D%7D")
        .await
        .is(400);
}

#[tokio::test]
async fn a_parked_document_is_reported_and_retried() {
    let (router, _) = shop(Vec::new()).await;
    let answer = post(&router, "/streams/cart-1", &json!([added(1)])).await.is(201);
    let token = answer["bookmark"].as_str().unwrap();
    let read =
        get(&router, &format!("/collections/cart_details/documents/cart-1?at_least={token}")).await.is(409);
    assert_eq!(read["type"], "urn:leftfold:problem:parked");
    let parked = get(&router, "/collections/cart_details/parked").await.is(200);
    assert_eq!(parked["parked"][0]["unit"], json!({ "document": "cart-1" }));
    let retried =
        post(&router, "/collections/cart_details/parked/retry", &json!({ "documents": ["cart-1"] }))
            .await
            .is(200);
    assert_eq!(retried["outcomes"][0]["outcome"], "still-failing");
    let status = get(&router, "/status").await.is(200);
    assert_eq!(status["projections"][0]["parked_documents"], 1);
}

#[tokio::test]
async fn the_doctor_says_what_to_do() {
    let (router, _) = shop(Vec::new()).await;
    let said = get(&router, "/doctor").await.is(200);
    assert_eq!(said["worst"], "notice", "it is in memory: {said}");
    let answer = post(&router, "/streams/cart-1", &json!([added(1)])).await.is(201);
    let token = answer["bookmark"].as_str().unwrap();
    get(&router, &format!("/collections/cart_details/documents/cart-1?at_least={token}")).await.is(409);
    let said = get(&router, "/doctor").await.is(200);
    assert_eq!(said["worst"], "wrong");
    let of_carts = said["findings"].as_array().unwrap().iter().find(|one| one["subject"] == "cart_details");
    let of_carts = of_carts.unwrap();
    assert_eq!((&of_carts["severity"], &of_carts["area"]), (&json!("wrong"), &json!("projections")));
    assert!(of_carts["found"].as_str().unwrap().starts_with("1 document is parked"), "{of_carts}");
    assert!(of_carts["advice"].as_str().unwrap().contains("parked retry"), "{of_carts}");
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
            assert!(bad.is_told(detail), "{}, {number}: {detail}", bad.name);
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

/// An earlier version accepted such data from brokers.
#[tokio::test]
async fn data_that_nobody_can_read_is_shown_as_it_is() {
    let app = Leftfold::on(Memory::default()).projection(CartDetails).start().await.unwrap();
    let (router, _) = Service::new(app.clone()).await.unwrap().router();
    let nested = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
    let events = [nested.as_str(), "1e999"]
        .map(|data| NewEvent::new("a", Json::stored(data).assume_strict()).unwrap());
    app.append_events("cart-1", Expected::Any, events.to_vec()).await.unwrap();
    for path in ["/streams/cart-1", "/log"] {
        let answer = get(&router, path).await;
        assert!(answer.status == 200 && answer.text.contains(&nested) && answer.text.contains("1e999"));
    }
}

#[tokio::test]
async fn numbers_are_drawn_once() {
    let (router, _) = shop(Vec::new()).await;
    let draw = |key: &'static str| {
        let router = router.clone();
        async move {
            send(&router, "POST", "/counters/prices?count=3", &[("idempotency-key", key)], "").await.is(200)
        }
    };
    assert_eq!(draw("a").await, json!({ "first": 1, "last": 3 }));
    assert_eq!(draw("b").await, json!({ "first": 4, "last": 6 }));
    assert_eq!(draw("a").await, json!({ "first": 1, "last": 3 }), "the same request again");
    post(&router, "/counters/prices?count=0", &Value::Null).await.is(400);
}

/// A collection is rebuilt while clients ask for its progress; readers are switched to it, and the
/// switch is undone.
#[tokio::test]
async fn a_collection_is_rebuilt_and_that_is_undone() {
    let (router, _) = shop(Vec::new()).await;
    for cart in 0..20 {
        post(&router, &format!("/streams/cart-{cart}"), &json!([opened(), added(1)])).await.is(201);
    }
    get(&router, "/collections/cart_details/rebuild").await.is(404);
    let rebuilt = async |how: &Value, state: &str| {
        let begun = post(&router, "/collections/cart_details/rebuild", how).await.is(202);
        loop {
            let known = get(&router, "/collections/cart_details/rebuild").await.is(200);
            assert_eq!(known["generation"], begun["generation"]);
            if known["state"] != "building" {
                assert_eq!(known["state"], state, "{known}");
                assert_eq!(known["progress"]["total"], 40);
                return known;
            }
            tokio::task::yield_now().await;
        }
    };
    let live = async || {
        let status = get(&router, "/status").await.is(200);
        let of = status["projections"].as_array().unwrap().iter();
        let of = of.filter(|one| one["projection"] == "cart_details");
        of.map(|one| one["generations"]["live"]["number"].as_u64().unwrap()).next().unwrap()
    };
    let built = rebuilt(&json!({ "switch": false }), "built").await;
    assert_eq!((live().await, &built["difference"]["differing"]), (0, &json!(0)));
    let switched = rebuilt(&json!({}), "switched").await;
    assert_eq!((live().await, &switched["generation"]), (1, &built["generation"]));
    post(&router, "/collections/cart_details/undo", &json!({})).await.is(200);
    assert_eq!(live().await, 0);
    let nothing = post(&router, "/collections/cart_details/rebuild/cancel", &json!({})).await.is(200);
    assert_eq!(nothing["cancelled"], false);

    let verified = get(&router, "/collections/cart_details/verification?sample=7").await.is(200);
    assert_eq!((&verified["verified"]["checked"], &verified["differing"]), (&json!(7), &json!([])));
    get(&router, "/collections/cart_details/verification?sample=0").await.is(400);
    post(&router, "/collections/nothing/rebuild", &json!({})).await.is(404);
}

#[tokio::test]
async fn bad_requests_say_what_was_expected() {
    let (router, _) = shop(Vec::new()).await;
    let json = [("content-type", "application/json")];
    for (method, path, body, status, said) in [
        ("GET", "/nothing", "", 404, "/openapi.json"),
        ("DELETE", "/streams/a", "", 405, "/openapi.json"),
        ("GET", "/collections/nothing/documents/a", "", 404, "cart_details, client_summary"),
        ("GET", "/collections/cart_details/documents/a", "", 404, "has no document"),
        ("GET", "/streams/a?limit=0", "", 400, "1 to 1000"),
        ("GET", "/streams/a?limits=3", "", 400, "limits"),
        ("GET", "/log?wait=1h", "", 400, "at most 60s"),
        ("GET", "/log?after=1-2-3", "", 400, "not a place in this log"),
        (
            "GET",
            "/collections/cart_details/documents/a?at_least=x",
            "",
            400,
            "partition:position:revision:stream",
        ),
        ("GET", "/streams/a%FF", "", 400, "UTF-8"),
        ("POST", "/streams/a", "{", 400, "EOF"),
        ("POST", "/streams/a", "[]", 400, "0 events"),
        ("POST", "/streams/a", r#"{"type":"a","data":1,"stray":2}"#, 400, "stray"),
        ("POST", "/streams/a", r#"{"type":"","data":1}"#, 400, "event type"),
        ("POST", "/tasks/retry", "{}", 400, "all"),
        ("GET", "/tasks/a/b", "", 404, "reaction a has no task for document b"),
        ("POST", "/conflicts/x/discard", "", 404, "conflict x does not exist"),
        ("POST", "/rejected/x/forget", "", 404, "rejected message x does not exist"),
    ] {
        let answer = send(&router, method, path, &json, body).await;
        let problem = answer.is(status);
        assert!(problem["detail"].as_str().unwrap().contains(said), "{method} {path}: {problem}");
    }
    let large = format!("{{\"type\":\"a\",\"data\":\"{}\"}}", "x".repeat(20_000));
    send(&router, "POST", "/streams/a", &json, &large).await.is(413);
    send(&router, "POST", "/streams/a", &[("content-type", "text/plain")], "{}").await.is(415);
    send(&router, "POST", "/streams/a", &[("idempotency-key", "")], "{\"type\":\"a\",\"data\":1}")
        .await
        .is(400);
}

#[tokio::test]
async fn every_operation_that_is_described_is_there_and_guarded() {
    let (secret, token) = Token::generate("nobody", Vec::new()).unwrap();
    let (router, _) = shop(vec![token]).await;
    let description = get(&router, "/openapi.json").await.is(200);
    assert!(description["paths"]["/events"]["post"].is_object());
    let mut guarded = 0;
    for (path, operations) in description["paths"].as_object().unwrap() {
        let uri = path.replace(['{', '}'], "");
        for (method, operation) in operations.as_object().unwrap() {
            let method = method.to_uppercase();
            let answer = send(&router, &method, &uri, &[], "").await;
            if operation.get("security").is_none() {
                answer_is_described(&answer, operation);
                continue;
            }
            guarded += 1;
            answer.is(401);
            let parameters = operation["parameters"].as_array().unwrap();
            let has_key = parameters.iter().any(|one| one["name"] == "Idempotency-Key");
            assert_eq!(has_key, method == "POST", "{method} {path}");
            let allowed = operation["security"][0]["token"][0].as_str().unwrap().parse::<Scope>();
            assert!(allowed.is_ok());
            let bearer = format!("Bearer {secret}");
            send(&router, &method, &uri, &[("authorization", &bearer)], "").await.is(403);
        }
    }
    assert!(guarded > 25, "{guarded}");
}

#[track_caller]
fn answer_is_described(answer: &Answer, operation: &Value) {
    let responses = operation["responses"].as_object().unwrap();
    assert!(responses.contains_key(&answer.status.to_string()), "{}: {operation}", answer.status);
}

#[tokio::test]
async fn what_is_answered_is_described() {
    let (router, _) = shop(Vec::new()).await;
    post(&router, "/streams/stream", &json!([opened(), added(1)])).await.is(201);
    let description = get(&router, "/openapi.json").await.is(200);
    for (path, operations) in description["paths"].as_object().unwrap() {
        let uri =
            path.replace("{collection}", "cart_details").replace("{id}", "stream").replace(['{', '}'], "");
        let is_endless = path.ends_with("/changes");
        for (method, operation) in operations.as_object().unwrap().iter().filter(|_| !is_endless) {
            let names = operation["parameters"].as_array().unwrap().iter().filter(|one| one["in"] == "query");
            for name in names {
                // Each described parameter is known: only its value is wrong.
                let uri = format!("{uri}?{}=%00", name["name"].as_str().unwrap());
                let answer = send(&router, &method.to_uppercase(), &uri, &[], "").await;
                assert!(!answer.text.contains("unknown field"), "{uri}: {}", answer.text);
            }
            let answer = send(&router, &method.to_uppercase(), &uri, &[], "").await;
            let is_described =
                operation["responses"].as_object().unwrap().contains_key(&answer.status.to_string());
            assert!(
                is_described || answer.status == 400,
                "{method} {uri}: {} {}",
                answer.status,
                answer.text
            );
        }
    }
}

/// A second undo reverts the first, so a request that is sent twice must be processed once.
#[tokio::test]
async fn a_write_with_a_key_is_done_once() {
    let store = Memory::default();
    let app = async || Leftfold::on(store.clone()).projection(CartDetails).start().await.unwrap();
    let tokens = ["ann", "bob"].map(|name| Token::generate(name, Scope::ALL.to_vec()).unwrap());
    let [(ann, first), (bob, second)] = tokens;
    let service = async || {
        let service = Service::new(app().await).await.unwrap();
        service.tokens(vec![first.clone(), second.clone()]).router().0
    };
    let router = service().await;
    let ask = async |router: &Router, secret: &str, method: &str, path: &str, key: &str, body: &str| {
        let bearer = format!("Bearer {secret}");
        let headers =
            [("authorization", &bearer[..]), ("content-type", "application/json"), ("idempotency-key", key)];
        send(router, method, path, &headers, body).await
    };
    let live = async || {
        let status = ask(&router, &ann, "GET", "/status", "none", "").await.is(200);
        status["projections"][0]["generations"]["live"]["number"].as_u64().unwrap()
    };
    let (rebuild, undo) = ("/collections/cart_details/rebuild", "/collections/cart_details/undo");
    let begun = ask(&router, &ann, "POST", rebuild, "r1", "{}").await;
    begun.is(202);
    while live().await == 0 {
        tokio::task::yield_now().await;
    }
    let again = ask(&router, &ann, "POST", rebuild, "r1", "{}").await;
    assert_eq!((again.status, &again.text), (202, &begun.text));
    assert_eq!(again.headers["idempotency-replayed"], "true");

    let undone = ask(&router, &ann, "POST", undo, "u1", "").await;
    undone.is(200);
    assert!(!undone.headers.contains_key("idempotency-replayed"));
    assert_eq!(live().await, 0);
    // Another process, or the same one after a restart, gives the same response.
    for router in [&router, &service().await] {
        let again = ask(router, &ann, "POST", undo, "u1", "").await;
        assert_eq!((again.status, &again.text, live().await), (200, &undone.text, 0));
    }
    let other = ask(&router, &ann, "POST", undo, "u1", "{}").await.is(422);
    assert_eq!(other["type"], "urn:leftfold:problem:key-reused");
    ask(&router, &ann, "POST", rebuild, "u1", "").await.is(422);
    ask(&router, &ann, "POST", undo, "", "").await.is(400);
    assert_eq!(live().await, 0);
    // Keys belong to the token that sent them.
    ask(&router, &bob, "POST", undo, "u1", "").await.is(200);
    assert_eq!(live().await, 1);

    // A failed request had no effect, and may succeed the next time.
    for _ in 0..2 {
        let failed = ask(&router, &ann, "POST", "/conflicts/x/discard", "c1", "").await;
        failed.is(404);
        assert!(!failed.headers.contains_key("idempotency-replayed"));
    }
}

/// A read model that can be blocked, so that a rebuild of it takes long.
#[derive(Clone)]
struct Slow<P>(P, std::sync::Arc<std::sync::atomic::AtomicBool>);

impl<P: leftfold::Projection> leftfold::Projection for Slow<P> {
    type Event = P::Event;
    type Document = P::Document;

    fn name(&self) -> &str {
        self.0.name()
    }

    fn fold(
        &self,
        document: Option<P::Document>,
        event: &leftfold::Event<P::Event>,
    ) -> Result<Option<P::Document>, leftfold::fold::Error> {
        if self.1.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(leftfold::fold::Error::transient("not yet"));
        }
        self.0.fold(document, event)
    }
}

/// If a service replaces another, its rebuilds continue.
#[tokio::test]
async fn a_rebuild_goes_on_where_a_service_takes_the_place_of_another() {
    let is_slow = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let store = Memory::default();
    let app = async || {
        let app = Leftfold::on(store.clone()).projection(Slow(CartDetails, is_slow.clone()));
        let options = leftfold::fold::FoldOptions {
            retry: leftfold::Backoff::default().without_limit(),
            ..leftfold::fold::FoldOptions::default()
        };
        app.options(options).start().await.unwrap()
    };
    let first = app().await;
    let (router, stop) = Service::new(first.clone()).await.unwrap().router();
    let appended = post(&router, "/streams/cart-1", &opened()).await.is(201);
    let token = appended["bookmark"].as_str().unwrap();
    let path = format!("/collections/cart_details/documents/cart-1?at_least={token}");
    get(&router, &path).await.is(200);

    is_slow.store(true, std::sync::atomic::Ordering::SeqCst);
    let rebuild = "/collections/cart_details/rebuild";
    let begun = post(&router, rebuild, &json!({})).await.is(202);
    assert_eq!(get(&router, rebuild).await.is(200)["state"], "building");
    stop.stop();
    first.stop().await;
    is_slow.store(false, std::sync::atomic::Ordering::SeqCst);

    let (router, stop) = Service::new(app().await).await.unwrap().instead_of(&stop).router();
    let state = async || get(&router, rebuild).await.is(200);
    while state().await["state"] == "building" {
        tokio::task::yield_now().await;
    }
    let state = state().await;
    assert_eq!(
        (&state["state"], &state["generation"]),
        (&json!("switched"), &begun["generation"]),
        "{state}"
    );
    get(&router, &path).await.is(200);
    stop.stop();
}
