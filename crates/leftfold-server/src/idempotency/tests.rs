use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use leftfold::{Leftfold, Memory};
use tower::ServiceExt as _;

use super::{AfterUnknown, Keyed, keyed};
use crate::Service;

/// Sends a request with a key three times, where the first one gets `first` as its status. Returns
/// the statuses and how often the handler ran.
async fn sent_thrice(after_unknown: AfterUnknown, first: StatusCode) -> ([u16; 3], usize) {
    let app = Leftfold::on(Memory::default()).start().await.unwrap();
    let shared = Arc::new(Service::new(app).await.unwrap());
    let times = Arc::new(AtomicUsize::new(0));
    let done = Arc::clone(&times);
    let handler =
        move || async move { if done.fetch_add(1, Ordering::SeqCst) == 0 { first } else { StatusCode::OK } };
    let treatment = Keyed { after_unknown, identifying_headers: |_, name| name == "x-event" };
    let router = Router::new().route("/", keyed(post(handler), treatment, &shared)).with_state(shared);
    let send = async |event: &str| {
        let request = Request::post("/").header("idempotency-key", "k").header("x-event", event);
        let request = request.header("x-trace", times.load(Ordering::SeqCst));
        router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status().as_u16()
    };
    let statuses = [send("a").await, send("a").await, send("a").await];
    assert_eq!(send("b").await, 422, "another value of an identifying header is another request");
    (statuses, times.load(Ordering::SeqCst))
}

/// A failed request may have taken effect: it is repeated only where that is harmless.
#[tokio::test]
async fn a_request_with_an_unknown_outcome_is_repeated_only_where_that_is_harmless() {
    let (failed, refused) = (StatusCode::SERVICE_UNAVAILABLE, StatusCode::NOT_FOUND);
    assert_eq!(sent_thrice(AfterUnknown::Repeat, StatusCode::OK).await, ([200, 200, 200], 1));
    assert_eq!(sent_thrice(AfterUnknown::Repeat, failed).await, ([503, 200, 200], 2));
    assert_eq!(sent_thrice(AfterUnknown::Refuse, refused).await, ([404, 200, 200], 2));
    assert_eq!(sent_thrice(AfterUnknown::Refuse, failed).await, ([503, 409, 409], 1));
}
