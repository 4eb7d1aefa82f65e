//! The commands that look after read models.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Place, command, run};
use leftfold::{App, Event, Expected, Json, Leftfold, NewEvent, Projection, Route, Token, fold};
use leftfold_sqlite::Sqlite;
use serde_json::{Value, json};
use shopping_cart::CartEvent::{ProductItemAdded, ShoppingCartConfirmed, ShoppingCartOpened};
use shopping_cart::{CartDetails, CartEvent, ClientSummary, DailyTotals, OpenCarts};

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

/// Runs workers on the file until all is folded or parked.
async fn fold(place: &Place, append: impl AsyncFnOnce(&App<Sqlite>)) {
    let app = Leftfold::on(Sqlite::open(&place.file).await.unwrap())
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
async fn shop() -> (Place, Token) {
    let place = Place::new();
    let mut token = None;
    fold(&place, async |app| {
        app.append("cart-1", [opened("ann"), shoes(2), confirmed("ann", 9_800)]).await.unwrap();
        token = Some(app.append("cart-2", [opened("bob"), shoes(1)]).await.unwrap());
    })
    .await;
    (place, token.unwrap())
}

#[tokio::test]
async fn status_tells_how_far_each_projection_is_and_what_is_parked() {
    let (place, _) = shop().await;
    place.run(&["status"]).exits(0).says("client_summary").says("nobody taught me that");
    let all = place.run(&["status", "--json"]).exits(0).json();
    assert_eq!(all[0]["projection"], "cart_details");
    assert_eq!((&all[0]["documents"], &all[0]["parked_documents"]), (&json!(2), &json!(1)));
    assert_eq!((&all[1]["lag"], &all[1]["position"]), (&json!(0), &json!({"0": 5})));
    place.run(&["status", "--check"]).exits(1);
    place.run(&["parked", "retry", "--all"]).exits(0);
    place.run(&["status", "--check"]).exits(0);
}

#[tokio::test]
async fn get_reads_a_document_and_can_wait_for_an_event() {
    let (place, token) = shop().await;
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
    let app = Leftfold::on(Sqlite::open(&place.file).await.unwrap()).open().await.unwrap();
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

#[tokio::test]
async fn parked_documents_are_listed_and_retried() {
    let (place, _) = shop().await;
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

#[tokio::test]
async fn what_still_fails_stays_parked() {
    let place = Place::new();
    fold(&place, async |app| drop(app.append("cart-1", [shoes(1)]).await.unwrap())).await;
    place.run(&["parked", "retry", "--all"]).exits(1).says("the cart is not open").says("still failing");
    place.run(&["refold", "cart_details", "cart-1"]).exits(1).says("the cart is not open");
    let steps = place.run(&["explain", "cart_details", "cart-1", "--json"]).exits(0).json();
    assert_eq!(steps[0]["effect"], json!({"failed": "the cart is not open"}));
}

#[tokio::test]
async fn streams_are_parked_where_events_are_routed_by_content() {
    let place = Place::new();
    fold(&place, async |app| {
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

#[tokio::test]
async fn explain_tells_what_each_event_changed() {
    let (place, _) = shop().await;
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

#[tokio::test]
async fn refold_makes_a_document_what_its_events_make_of_it() {
    let (place, _) = shop().await;
    place.run(&["refold", "client_summary", "bob"]).exits(0).says("it is what it was");
    place.sql("UPDATE leftfold_client_summary_1 SET body = '{}' WHERE id = 'bob'");
    let refolded = place.run(&["refold", "client_summary", "bob", "--json"]).exits(0).json();
    assert_eq!((&refolded["changed"], &refolded["document"]["opened"]), (&json!(true), &json!(1)));
    place.run(&["refold", "client_summary", "zoe"]).exits(1).says("no event makes such a document");
}

#[test]
fn a_file_that_is_not_there_is_not_made() {
    let place = Place::new();
    let id = ["cart_details", "cart-1"];
    let commands = [
        vec!["status"],
        vec!["get", id[0], id[1]],
        vec!["parked", "list"],
        vec!["parked", "retry", "--all"],
        vec!["explain", id[0], id[1]],
        vec!["refold", id[0], id[1]],
    ];
    for command in commands {
        place.run(&command).exits(3).says("there is no such file; name another with --store");
        assert!(!place.file.exists(), "{command:?}");
    }
    std::fs::write(&place.file, "").unwrap();
    place.run(&["status"]).exits(3).says("the file is empty");
    assert_eq!(std::fs::read(&place.file).unwrap(), b"");
    // Without --store it is a file in the current directory.
    let here = run(command().arg("status").current_dir(place.directory.path())).exits(3);
    here.says("opening leftfold.db: there is no such file");
}

#[tokio::test]
async fn a_command_that_can_not_be_understood_says_so() {
    let (place, _) = shop().await;
    for command in [["get", "carts", "1"], ["explain", "carts", "1"], ["refold", "carts", "1"]] {
        let answer = place.run(&command).exits(2).says("no read model is named \"carts\"");
        answer.says("cart_details, client_summary, daily_totals, open_carts");
    }
    place.run(&["parked", "list", "carts"]).exits(2).says("no read model is named \"carts\"");
    place.run(&["parked", "retry"]).exits(2).says("--all");
    place.run(&["get", "cart_details", ""]).exits(2).says("document id");
    place.run(&["sing"]).exits(2);
    run(command().arg("--help")).exits(0).says("Exit status:");
}

/// A log that the demo did not make is left alone.
#[tokio::test]
async fn the_demo_refuses_the_log_of_others() {
    let (place, _) = shop().await;
    let before = place.ask("SELECT count(*) || '' FROM leftfold_events");
    place.run(&["demo", "--events", "10"]).exits(2).says("its log is not a demo's");
    assert_eq!(place.ask("SELECT count(*) || '' FROM leftfold_events"), before);
}
