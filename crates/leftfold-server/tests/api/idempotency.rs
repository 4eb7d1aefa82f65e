//! Repeated writes.

use axum::Router;
use leftfold::{Leftfold, Memory};
use leftfold_server::{Scope, Service, Token};
use serde_json::{Value, json};
use shopping_cart::CartDetails;

use crate::client::{added, opened, post, send, shop};

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
