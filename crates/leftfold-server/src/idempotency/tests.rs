use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::routing::post;
use leftfold::{Leftfold, Memory};
use tower::ServiceExt as _;

use std::sync::Arc;

use super::once;
use crate::Service;
use axum::body::Body;
use axum::http::{Request, StatusCode};

/// Sends a request with a key three times, where the first one gets `first` as its status. Returns
/// the statuses and how often the handler ran.
async fn sent_thrice(repeatable: bool, first: StatusCode) -> ([u16; 3], usize) {
    let app = Leftfold::on(Memory::default()).start().await.unwrap();
    let shared = Arc::new(Service::new(app).await.unwrap());
    let times = Arc::new(AtomicUsize::new(0));
    let done = Arc::clone(&times);
    let handler =
        move || async move { if done.fetch_add(1, Ordering::SeqCst) == 0 { first } else { StatusCode::OK } };
    let router = Router::new().route("/", once(post(handler), repeatable, &shared)).with_state(shared);
    let send = async || {
        let request = Request::post("/").header("idempotency-key", "k").body(Body::empty()).unwrap();
        router.clone().oneshot(request).await.unwrap().status().as_u16()
    };
    let statuses = [send().await, send().await, send().await];
    (statuses, times.load(Ordering::SeqCst))
}

/// A failed request may have taken effect: it is repeated only where that is harmless.
#[tokio::test]
async fn what_may_have_been_done_is_not_done_again_unless_that_is_harmless() {
    let (failed, refused) = (StatusCode::SERVICE_UNAVAILABLE, StatusCode::NOT_FOUND);
    assert_eq!(sent_thrice(true, StatusCode::OK).await, ([200, 200, 200], 1));
    assert_eq!(sent_thrice(true, failed).await, ([503, 200, 200], 2));
    assert_eq!(sent_thrice(false, refused).await, ([404, 200, 200], 2));
    assert_eq!(sent_thrice(false, failed).await, ([503, 409, 409], 1));
}
