//! The audit trail as a client sees it: it contains every operation of operators that changes
//! something.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use http_body_util::BodyExt as _;
use leftfold::log::Entry;
use leftfold::react::{Reaction, Retry};
use leftfold::sequence::Rejected;
use leftfold::{
    App, Delivery, EventId, EventKind, Json, Leftfold, Memory, Policy, Revision, Sequencer, Sequences as _,
    StreamId,
};
use leftfold_server::{Scope, Service, Token};
use serde_json::{Value, json};
use shopping_cart::CartDetails;
use tower::ServiceExt as _;

struct Client {
    router: Router,
    secret: String,
}

impl Client {
    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
        let mut request = Request::builder().method(method).uri(path);
        request = request.header("authorization", format!("Bearer {}", self.secret));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response: Response<Body> = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let (status, answer) =
            self.send("POST", path, &[("content-type", "application/json")], &body.to_string()).await;
        assert!(status < 300, "{path}: {status} {answer}");
        answer
    }

    async fn get(&self, path: &str) -> Value {
        let (status, answer) = self.send("GET", path, &[], "").await;
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }
}

async fn served() -> (Client, App<Memory>) {
    let mail = Reaction::on(CartDetails, "mail")
        .retry(Retry::never())
        .run(async |_| Err::<(), _>("the server is down".into()));
    let app = Leftfold::on(Memory::default()).projection(CartDetails).reaction(mail).start().await.unwrap();
    let (secret, token) = Token::generate("ann", vec![Scope::Operate, Scope::Read, Scope::Ingest]).unwrap();
    let (router, _) = Service::new(app.clone()).await.unwrap().tokens(vec![token]).router();
    (Client { router, secret }, app)
}

fn delivery(stream: &str, revision: u64, text: &str) -> Delivery {
    let entry = Entry {
        id: EventId::new(format!("{stream}-{revision}-{text}")).unwrap(),
        kind: EventKind::new("noted").unwrap(),
        time: "2026-01-01T00:00:00Z".parse().unwrap(),
        data: Json::of(&text).unwrap(),
        metadata: None,
    };
    let stream = StreamId::new(stream).unwrap();
    Delivery { stream, revision: Some(Revision(revision)), previous: None, entry: Arc::new(entry) }
}

fn rejected(id: &str) -> Rejected {
    let content = json!({
        "specversion": "1.0", "id": id, "source": "shop", "subject": id, "type": "noted", "sequence": "1", "data": {},
    });
    Rejected {
        source: "orders".to_owned(),
        reason: "it was odd".to_owned(),
        since: "2026-01-01T00:00:00Z".parse().unwrap(),
        attributes: [("content-type".to_owned(), "application/cloudevents+json".to_owned())].into(),
        content: content.to_string().into_bytes(),
    }
}

#[tokio::test]
async fn every_operation_that_changes_something_is_recorded() {
    let (client, app) = served().await;
    let (store, sequencer) = (app.store().clone(), Sequencer::new(app.store().clone()));
    let opened = json!({ "type": "shopping-cart-opened", "data": { "clientId": "ann" } });
    client.post("/streams/cart-1", &opened).await;
    // The cart was never opened, so nothing can be added to it.
    let data = json!({ "productId": "shoes", "name": "Shoes", "quantity": 1, "unitPrice": 1 });
    client.post("/streams/cart-2", &json!({ "type": "product-item-added", "data": data })).await;
    app.caught_up().await.unwrap();
    app.reacting().unwrap().idle().await.unwrap();
    let fed = vec![
        delivery("a", 1, "right"),
        delivery("a", 1, "wrong"),
        delivery("a", 1, "odd"),
        delivery("b", 1, "x"),
        delivery("b", 3, "x"),
    ];
    sequencer.ingest(Policy::Contiguous, fed).await.unwrap();
    store.reject(vec![rejected("m-1"), rejected("m-2")]).await.unwrap();
    let conflicts = client.get("/conflicts").await["conflicts"].clone();
    let conflict = |at: usize| conflicts[at]["id"].as_str().unwrap().to_owned();

    let why = json!({ "reason": "because" });
    let collection = "/collections/cart_details";
    client.post(&format!("{collection}/parked/retry"), &json!({ "dry_run": true })).await;
    client.post(&format!("{collection}/parked/retry"), &why).await;
    client.post(&format!("{collection}/documents/cart-1/refold"), &why).await;
    let building = json!({ "switch": false, "reason": "because" });
    let rebuilt = async |state: &str| {
        while client.get(&format!("{collection}/rebuild")).await["state"] != state {
            tokio::task::yield_now().await;
        }
    };
    client.post(&format!("{collection}/rebuild"), &building).await;
    rebuilt("built").await;
    client.post(&format!("{collection}/rebuild/cancel"), &why).await;
    client.post(&format!("{collection}/rebuild"), &why).await;
    rebuilt("switched").await;
    client.post(&format!("{collection}/undo"), &why).await;
    client.post("/held/b/skip", &json!({ "through": 2, "reason": "because" })).await;
    client.post(&format!("/conflicts/{}/keep", conflict(0)), &why).await;
    client.post(&format!("/conflicts/{}/discard", conflict(1)), &why).await;
    client.post(&format!("/rejected/{}/resubmit", rejected("m-1").id()), &why).await;
    client.post(&format!("/rejected/{}/forget", rejected("m-2").id()), &why).await;
    client.post("/reactions/mail/pause", &why).await;
    client.post("/tasks/retry", &json!({ "reaction": "mail", "reason": "because" })).await;
    client.post("/reactions/mail/resume", &why).await;
    // Refused operations are not recorded.
    assert_eq!(client.send("POST", "/conflicts/x/discard", &[], "").await.0, 404);

    let (mut entries, mut after) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("/audit?limit=4{after}")).await;
        entries.extend(page["entries"].as_array().unwrap().clone());
        let Some(end) = page["after"].as_str() else { break };
        after = format!("&after={end}");
    }
    entries.reverse();
    let actions: Vec<_> = entries.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    let expected = [
        "retry-parked",
        "refold",
        "rebuild",
        "cancel-rebuild",
        "rebuild",
        "switch",
        "undo",
        "skip-held",
        "keep-stored",
        "discard-conflict",
        "resubmit-rejected",
        "forget-rejected",
        "pause-reaction",
        "retry-tasks",
        "resume-reaction",
    ];
    assert_eq!(actions, expected);
    for entry in &entries {
        assert_eq!((&entry["actor"], &entry["reason"]), (&json!("ann"), &json!("because")), "{entry}");
        assert!(!entry["target"].as_str().unwrap().is_empty() && entry["at"].is_string(), "{entry}");
    }
}

/// The test above runs each of these. A new operation must be added there, too.
#[tokio::test]
async fn every_operation_of_operators_is_known_here() {
    let (client, _) = served().await;
    let described = client.get("/openapi.json").await;
    let operations: BTreeSet<_> = described["paths"]
        .as_object()
        .unwrap()
        .values()
        .filter_map(|path| path.get("post"))
        .filter(|operation| operation["security"][0]["token"][0] == "operate")
        .map(|operation| operation["operationId"].as_str().unwrap())
        .collect();
    let tried = [
        "cancelRebuild",
        "discardConflict",
        "forgetRejected",
        "keepStored",
        "pauseReaction",
        "rebuildCollection",
        "refoldDocument",
        "resubmitRejected",
        "resumeReaction",
        "retryParked",
        "retryTasks",
        "skipHeld",
        "undoRebuild",
    ];
    assert_eq!(operations, BTreeSet::from(tried));
}

#[tokio::test]
async fn a_request_that_is_repeated_is_recorded_once() {
    let (client, app) = served().await;
    app.reacting().unwrap().idle().await.unwrap();
    let key = [("idempotency-key", "pause-1")];
    for _ in 0..2 {
        assert_eq!(client.send("POST", "/reactions/mail/pause", &key, "").await.0, 200);
    }
    let entries = client.get("/audit").await["entries"].clone();
    assert_eq!(entries.as_array().unwrap().len(), 1, "{entries}");
    assert_eq!((&entries[0]["reason"], &entries[0]["target"]), (&Value::Null, &json!("mail")));
}
