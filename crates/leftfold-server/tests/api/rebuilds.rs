//! Rebuilds while clients read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leftfold::fold::{self, FoldOptions};
use leftfold::{Backoff, Event, Leftfold, Memory, Projection};
use leftfold_server::Service;
use serde_json::{Value, json};
use shopping_cart::CartDetails;

use crate::client::{added, get, opened, post, shop};

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

/// A read model that can be blocked, so that a rebuild of it takes long.
#[derive(Clone)]
struct Slow<P>(P, Arc<AtomicBool>);

impl<P: Projection> Projection for Slow<P> {
    type Event = P::Event;
    type Document = P::Document;

    fn name(&self) -> &str {
        self.0.name()
    }

    fn fold(
        &self,
        document: Option<P::Document>,
        event: &Event<P::Event>,
    ) -> Result<Option<P::Document>, fold::Error> {
        if self.1.load(Ordering::SeqCst) {
            return Err(fold::Error::transient("not yet"));
        }
        self.0.fold(document, event)
    }
}

/// If a service replaces another, its rebuilds continue.
#[tokio::test]
async fn a_rebuild_continues_in_the_service_that_replaces_another() {
    let is_slow = Arc::new(AtomicBool::new(false));
    let store = Memory::default();
    let app = async || {
        let app = Leftfold::on(store.clone()).projection(Slow(CartDetails, is_slow.clone()));
        let options = FoldOptions { retry: Backoff::default().without_limit(), ..FoldOptions::default() };
        app.options(options).start().await.unwrap()
    };
    let first = app().await;
    let (router, stop) = Service::new(first.clone()).await.unwrap().router();
    let appended = post(&router, "/streams/cart-1", &opened()).await.is(201);
    let token = appended["bookmark"].as_str().unwrap();
    let path = format!("/collections/cart_details/documents/cart-1?at_least={token}");
    get(&router, &path).await.is(200);

    is_slow.store(true, Ordering::SeqCst);
    let rebuild = "/collections/cart_details/rebuild";
    let begun = post(&router, rebuild, &json!({})).await.is(202);
    assert_eq!(get(&router, rebuild).await.is(200)["state"], "building");
    stop.stop();
    first.stop().await;
    is_slow.store(false, Ordering::SeqCst);

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
