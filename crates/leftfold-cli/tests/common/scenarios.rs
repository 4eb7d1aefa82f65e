//! What the commands do on any store.

use leftfold::{App, Event, Expected, Json, Leftfold, Log as _, NewEvent, Projection, Route, Token, fold};
use serde_json::{Value, json};
use shopping_cart::CartEvent::{ProductItemAdded, ShoppingCartConfirmed, ShoppingCartOpened};
use shopping_cart::{CartDetails, CartEvent, ClientSummary, DailyTotals, OpenCarts};

use super::Place;

/// A test of each scenario, on a place that the expression makes.
macro_rules! scenarios {
    ($place:expr) => {
        scenarios! { $place =>
            status_tells_how_far_each_projection_is_and_what_is_parked,
            get_reads_a_document_and_can_wait_for_an_event,
            parked_documents_are_listed_and_retried,
            what_still_fails_stays_parked,
            streams_are_parked_where_events_are_routed_by_content,
            explain_tells_what_each_event_changed,
            refold_makes_a_document_what_its_events_make_of_it,
            the_demo_adds_to_what_an_earlier_one_left,
            the_demo_refuses_the_log_of_others,
        }
    };
    ($place:expr => $($name:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $name() {
                common::scenarios::$name(&$place).await;
            }
        )*
    };
}

/// A projection that can't fold any removal: what `parked retry` meets once the code is mended.
struct Broken<P>(P);

impl<P: Projection> Projection for Broken<P> {
    type Event = P::Event;
    type Document = P::Document;

    fn name(&self) -> &str {
        self.0.name()
    }

    fn route(&self) -> Route<P::Event> {
        self.0.route()
    }

    fn fold(
        &self,
        document: Option<P::Document>,
        event: &Event<P::Event>,
    ) -> Result<Option<P::Document>, fold::Error> {
        if event.kind.as_str() == "shopping-cart-confirmed" {
            return Err("nobody taught me that".into());
        }
        self.0.fold(document, event)
    }
}

fn opened(client: &str) -> CartEvent {
    ShoppingCartOpened { client_id: client.into() }
}

fn shoes(quantity: u32) -> CartEvent {
    ProductItemAdded { product_id: "shoes".into(), name: "Shoes".into(), quantity, unit_price: 4_900 }
}

fn confirmed(client: &str, total: u64) -> CartEvent {
    ShoppingCartConfirmed { client_id: client.into(), total }
}

/// Runs workers on the store until all is folded or parked.
async fn fold<P: Place>(place: &P, append: impl AsyncFnOnce(&App<P::Store>)) {
    let app = Leftfold::on(place.open().await)
        .projection(Broken(CartDetails))
        .projection(ClientSummary)
        .projection(DailyTotals)
        .projection(OpenCarts)
        .start()
        .await
        .unwrap();
    append(&app).await;
    app.caught_up().await.unwrap();
    app.stop().await;
}

/// Two carts: of ann, confirmed, which one read model could not fold; of bob, still open.
pub(crate) async fn shop(place: &impl Place) -> Token {
    let mut token = None;
    fold(place, async |app| {
        app.append("cart-1", [opened("ann"), shoes(2), confirmed("ann", 9_800)]).await.unwrap();
        token = Some(app.append("cart-2", [opened("bob"), shoes(1)]).await.unwrap());
    })
    .await;
    token.unwrap()
}

pub(crate) async fn status_tells_how_far_each_projection_is_and_what_is_parked(place: &impl Place) {
    shop(place).await;
    place.run(&["status"]).exits(0).says("client_summary").says("nobody taught me that");
    let all = place.run(&["status", "--json"]).exits(0).json();
    assert_eq!(all[0]["projection"], "cart_details");
    assert_eq!((&all[0]["documents"], &all[0]["parked_documents"]), (&json!(2), &json!(1)));
    assert_eq!((&all[1]["lag"], &all[1]["position"]), (&json!(0), &json!({"0": 5})));
    place.run(&["status", "--check"]).exits(1);
    place.run(&["parked", "retry", "--all"]).exits(0);
    place.run(&["status", "--check"]).exits(0);
}

pub(crate) async fn get_reads_a_document_and_can_wait_for_an_event(place: &impl Place) {
    let token = shop(place).await;
    place.run(&["get", "cart_details", "cart-2"]).exits(0).says("\"total\": 4900");
    let token_text = token.to_string();
    let wait = ["get", "cart_details", "cart-2", "--at-least", &token_text, "--json"];
    assert_eq!(place.run(&wait).exits(0).json()["clientId"], "bob");

    let absent = place.run(&["get", "cart_details", "cart-3", "--json"]).exits(1);
    assert!(absent.json()["error"].as_str().unwrap().contains("no such document"), "{absent:#?}");

    // Parked: the answer is at once, and says why.
    let parked = place.run(&["get", "cart_details", "cart-1", "--at-least", "0:3:3:cart-1"]).exits(1);
    parked.says("nobody taught me that").says("parked");

    // Lagging: no worker runs.
    let app = Leftfold::on(place.open().await).open().await.unwrap();
    let token = app.append("cart-2", [shoes(1)]).await.unwrap().to_string();
    let wait = ["get", "cart_details", "cart-2", "--at-least", &token, "--timeout", "0.1"];
    place.run(&wait).exits(1).says("has not folded position 6").says("1 events behind");

    // Unknown: no such event.
    place
        .run(&["get", "cart_details", "cart-2", "--at-least", "0:99:9:cart-2"])
        .exits(2)
        .says("names no event");
    place.run(&["get", "cart_details", "cart-2", "--at-least", "soon"]).exits(2).says("partition:position");
}

pub(crate) async fn parked_documents_are_listed_and_retried(place: &impl Place) {
    shop(place).await;
    place.run(&["parked", "list"]).exits(0).says("cart-1@3").says("nobody taught me that");
    let listed = place.run(&["parked", "list", "cart_details", "--json"]).exits(0).json();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!((&listed[0]["unit"], &listed[0]["id"]), (&json!("document"), &json!("cart-1")));
    assert_eq!(listed[0]["parked"]["kind"], "shopping-cart-confirmed");
    place.run(&["parked", "list", "open_carts"]).exits(0).says("nothing is parked");

    place.run(&["parked", "retry", "--all", "--dry-run"]).exits(0).says("1 would be repaired");
    place.run(&["parked", "list"]).says("cart-1@3");
    place.run(&["parked", "retry", "cart_details", "cart-2"]).exits(0).says("is not parked");
    let repaired = place.run(&["parked", "retry", "cart_details", "cart-1", "--json"]).exits(0).json();
    let expected = json!({
        "collection": "cart_details", "unit": "document", "id": "cart-1", "outcome": "repaired", "error": null,
    });
    assert_eq!(repaired, json!([expected]));
    assert_eq!(place.run(&["parked", "list", "--json"]).json(), json!([]));
    place.run(&["parked", "retry", "cart_details"]).exits(0).says("nothing to repair");
    place.run(&["get", "cart_details", "cart-1"]).exits(0).says("confirmed");
}

pub(crate) async fn what_still_fails_stays_parked(place: &impl Place) {
    fold(place, async |app| drop(app.append("cart-1", [shoes(1)]).await.unwrap())).await;
    place.run(&["parked", "retry", "--all"]).exits(1).says("the cart is not open").says("still failing");
    place.run(&["refold", "cart_details", "cart-1"]).exits(1).says("the cart is not open");
    let steps = place.run(&["explain", "cart_details", "cart-1", "--json"]).exits(0).json();
    assert_eq!(steps[0]["effect"], json!({"failed": "the cart is not open"}));
}

pub(crate) async fn streams_are_parked_where_events_are_routed_by_content(place: &impl Place) {
    fold(place, async |app| {
        let broken = NewEvent::new("shopping-cart-opened", Json::parse("{}").unwrap()).unwrap();
        app.append_events("cart-1", Expected::Any, vec![broken]).await.unwrap();
    })
    .await;
    let listed = place.run(&["parked", "list", "client_summary", "--json"]).exits(0).json();
    assert_eq!((&listed[0]["unit"], &listed[0]["id"]), (&json!("stream"), &json!("cart-1")));
    let retry = ["parked", "retry", "client_summary", "cart-1", "--streams"];
    place.run(&retry).exits(1).says("clientId");
    let all = place.run(&["parked", "retry", "--all", "--streams", "--json"]).exits(1).json();
    let units: Vec<_> = all.as_array().unwrap().iter().map(|one| &one["unit"]).collect();
    assert_eq!(units, ["stream", "stream"], "{all:#}");
}

pub(crate) async fn explain_tells_what_each_event_changed(place: &impl Place) {
    shop(place).await;
    let answer = place.run(&["explain", "cart_details", "cart-2"]).exits(0);
    let lines: Vec<_> = answer.stdout.lines().map(str::trim).collect();
    assert!(lines[0].starts_with("4  cart-2@1  shopping-cart-opened  "), "{answer:#?}");
    assert!(lines.contains(&"clientId: nothing → \"bob\""), "{answer:#?}");
    assert!(lines.contains(&"total: 0 → 4900"), "{answer:#?}");
    let steps = place.run(&["explain", "open_carts", "ann", "--json"]).exits(0).json();
    let steps = steps.as_array().unwrap();
    let kinds: Vec<_> = steps.iter().map(|step| step["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["shopping-cart-opened", "shopping-cart-confirmed"]);
    assert_eq!(steps[1]["document"], Value::Null);
    let gone = place.run(&["explain", "open_carts", "ann"]).exits(0);
    gone.says("carts: [\"cart-1\"] → nothing").says("the document is gone");
    assert_eq!(place.run(&["explain", "cart_details", "cart-9", "--json"]).exits(1).json(), json!([]));
    place.run(&["explain", "cart_details", "cart-9"]).exits(1).says("never was");
}

pub(crate) async fn refold_makes_a_document_what_its_events_make_of_it(place: &impl Place) {
    shop(place).await;
    place.run(&["refold", "client_summary", "bob"]).exits(0).says("it is what it was");
    place.spoil("client_summary", "bob", "opened").await;
    let refolded = place.run(&["refold", "client_summary", "bob", "--json"]).exits(0).json();
    assert_eq!((&refolded["changed"], &refolded["document"]["opened"]), (&json!(true), &json!(1)));
    place.run(&["refold", "client_summary", "zoe"]).exits(1).says("no event makes such a document");
}

/// Also where workers are killed.
#[allow(clippy::unused_async, reason = "all scenarios are called alike")]
pub(crate) async fn the_demo_adds_to_what_an_earlier_one_left(place: &impl Place) {
    let demo = ["demo", "--events", "500", "--kill-every", "1", "--seed", "1", "--json"];
    let first = place.run(&demo).exits(0).json();
    assert!(first["kills"].as_u64().unwrap() > 0, "{first:#}");
    let second = place.run(&demo).exits(0).json();
    assert_eq!((&second["equal"], &second["verdict"]["events"]), (&true.into(), &1_000.into()), "{second:#}");
    place.run(&["demo-verify"]).exits(0).says("1,000 events");
}

/// A log that the demo did not make is left alone.
pub(crate) async fn the_demo_refuses_the_log_of_others(place: &impl Place) {
    shop(place).await;
    let before = place.open().await.heads().await.unwrap();
    place.run(&["demo", "--events", "10"]).exits(2).says("its log is not a demo's");
    assert_eq!(place.open().await.heads().await.unwrap(), before);
}
