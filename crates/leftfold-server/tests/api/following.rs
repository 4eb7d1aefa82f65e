//! Long polls and event streams.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::client::{added, get, opened, post, shop};

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
