//! The behaviour of the commands on any store.

use std::sync::Arc;

use jiff::Timestamp;
use leftfold::log::Entry;
use leftfold::react::{Reaction, ReactionStore as _, Reactor, Retry};
use leftfold::sequence::Rejected;
use leftfold::{
    App, Bookmark, Delivery, Event, EventId, EventKind, Expected, Json, Leftfold, Log as _, NewEvent, Policy,
    Projection, Revision, Route, Sequencer, Sequences as _, StreamId, fold,
};
use serde_json::{Value, json};
use shopping_cart::CartEvent::{ProductItemAdded, ShoppingCartConfirmed, ShoppingCartOpened};
use shopping_cart::{CartDetails, CartEvent, ClientSummary, DailyTotals, OpenCarts};

use super::Place;

/// Defines a test of each scenario, on a place that the expression creates.
macro_rules! scenarios {
    ($place:expr) => {
        scenarios! { $place =>
            status_tells_how_far_each_projection_is_and_what_is_parked,
            get_reads_a_document_and_can_wait_for_an_event,
            parked_documents_are_listed_and_retried,
            what_still_fails_stays_parked,
            streams_are_parked_where_events_are_routed_by_content,
            explain_tells_what_each_event_changed,
            explain_tells_why_a_document_is_not_there,
            refold_makes_a_document_what_its_events_make_of_it,
            the_demo_adds_to_what_an_earlier_one_left,
            the_demo_refuses_the_log_of_others,
            what_waits_is_listed_shown_and_skipped,
            conflicts_are_listed_shown_and_resolved,
            rejected_messages_are_listed_shown_and_forgotten,
            rejected_messages_are_submitted_again,
            tasks_are_listed_shown_retried_and_paused,
            what_operators_did_is_listed,
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

/// A projection that can't fold removals. `parked retry` later uses the fixed code.
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

/// Runs workers on the store until everything is folded or parked.
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

/// Creates two carts: ann's is confirmed, and one read model could not fold it; bob's is still
/// open.
pub(crate) async fn shop(place: &impl Place) -> Bookmark {
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
    let status = place.run(&["status", "--json"]).exits(0).json();
    let all = &status["projections"];
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

    // Parked: the command fails at once, with the reason.
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
    assert_eq!((&steps[1]["size"], &steps[1]["effect"]["changed"][0]["after"]), (&Value::Null, &Value::Null));
    let gone = place.run(&["explain", "open_carts", "ann"]).exits(0);
    gone.says("carts: [\"cart-1\"] → nothing").says("the document is gone");
    assert_eq!(place.run(&["explain", "cart_details", "cart-9", "--json"]).exits(1).json(), json!([]));
    place.run(&["explain", "cart_details", "cart-9"]).exits(1).says("never routed");

    let past = place.run(&["explain", "cart_details", "cart-2", "--at", "1"]).exits(0);
    past.says("as of revision 1:").says("\"total\": 0");
    let steps = place.run(&["explain", "open_carts", "ann", "--at", "cart-1@1", "--json"]).exits(0).json();
    let changed = &steps[0]["effect"]["changed"][0];
    assert_eq!((steps.as_array().unwrap().len(), &changed["after"]["carts"]), (1, &json!(["cart-1"])));
    place.run(&["get", "open_carts", "ann", "--at", "cart-1@1"]).exits(0).says("cart-1");
    place.run(&["get", "open_carts", "ann"]).exits(1);
    place.run(&["get", "open_carts", "ann", "--at", "1"]).exits(2).says("stream@1");
    place.run(&["get", "open_carts", "ann", "--at", "2020-01-01T00:00:00Z"]).exits(1).says("there was no");
    place.run(&["explain", "open_carts", "ann", "--at", "yesterday"]).exits(2).says("stream@revision");
}

pub(crate) async fn explain_tells_why_a_document_is_not_there(place: &impl Place) {
    shop(place).await;
    let why = |collection: &str, id: &str| place.run(&["explain", collection, id, "--why-not"]);
    why("cart_details", "cart-2").exits(1).says("it is there");
    why("cart_details", "cart-9").exits(0).says("never routed");
    why("open_carts", "ann").exits(0).says("deleted: by shopping-cart-confirmed");
    let why = place.run(&["explain", "open_carts", "ann", "--why-not", "--json"]).exits(0).json();
    assert_eq!((&why[0]["why"], &why[0]["by"]["stream"]), (&json!("deleted"), &json!("cart-1")));
}

pub(crate) async fn refold_makes_a_document_what_its_events_make_of_it(place: &impl Place) {
    shop(place).await;
    place.run(&["refold", "client_summary", "bob"]).exits(0).says("it is what it was");
    place.spoil("client_summary", "bob", "opened").await;
    let refolded = place.run(&["refold", "client_summary", "bob", "--json"]).exits(0).json();
    assert_eq!((&refolded["changed"], &refolded["document"]["opened"]), (&json!(true), &json!(1)));
    place.run(&["refold", "client_summary", "zoe"]).exits(1).says("no event makes such a document");
}

/// Also if workers are killed.
#[allow(clippy::unused_async, reason = "all scenarios are called alike")]
pub(crate) async fn the_demo_adds_to_what_an_earlier_one_left(place: &impl Place) {
    let demo = ["demo", "--events", "500", "--kill-every", "1", "--seed", "1", "--json"];
    let first = place.run(&demo).exits(0).json();
    assert!(first["kills"].as_u64().unwrap() > 0, "{first:#}");
    let second = place.run(&demo).exits(0).json();
    assert_eq!((&second["equal"], &second["verdict"]["events"]), (&true.into(), &1_000.into()), "{second:#}");
    place.run(&["demo-verify"]).exits(0).says("1,000 events");
}

/// The demo does not touch a log that it did not create.
pub(crate) async fn the_demo_refuses_the_log_of_others(place: &impl Place) {
    shop(place).await;
    let before = place.open().await.heads().await.unwrap();
    place.run(&["demo", "--events", "10"]).exits(2).says("its log is not a demo's");
    assert_eq!(place.open().await.heads().await.unwrap(), before);
}

fn delivery(stream: &str, revision: u64, text: &str) -> Delivery {
    let entry = Entry {
        id: EventId::new(format!("{stream}-{revision}-{text}")).unwrap(),
        kind: EventKind::new("noted").unwrap(),
        time: Timestamp::UNIX_EPOCH,
        data: Json::of(&text).unwrap(),
        metadata: None,
    };
    let stream = StreamId::new(stream).unwrap();
    Delivery { stream, revision: Some(Revision(revision)), previous: None, entry: Arc::new(entry) }
}

pub(crate) async fn what_waits_is_listed_shown_and_skipped(place: &impl Place) {
    let sequencer = Sequencer::new(place.open().await);
    place.run(&["held", "list"]).exits(0).says("nothing is held");
    let fed =
        vec![delivery("a", 1, "x"), delivery("a", 4, "x"), delivery("a", 5, "y"), delivery("b", 2, "x")];
    sequencer.ingest(Policy::Contiguous, fed).await.unwrap();
    place.run(&["held", "list"]).exits(0).says("2 to 3").says("b");
    let listed = place.run(&["held", "list", "--json"]).exits(0).json();
    assert_eq!(listed[0]["waits_for"], json!([2, 3]));
    assert_eq!((&listed[1]["stream"], &listed[1]["held"]), (&json!("b"), &json!(1)));
    let shown = place.run(&["held", "show", "a", "--json"]).exits(0).json();
    assert_eq!((&shown["held"][1]["revision"], &shown["held"][1]["data"]), (&json!(5), &json!("y")));
    place.run(&["held", "show", "c"]).exits(1).says("nothing of c is held");
    let get = ["get", "cart_details", "a", "--timeout", "0", "--at-least"];
    let held = place.run(&[&get[..], &["a@5"]].concat()).exits(1);
    held.says("revision 5 of a is held: revision 2 has not come since");
    place.run(&[&get[..], &["a@3"]].concat()).exits(1).says("neither in the log nor held");
    place.run(&[&get[..], &["a@one"]].concat()).exits(2).says("or stream@revision");
    place.run(&["status"]).exits(0).says("3 events came early");
    let status = place.run(&["status", "--json"]).exits(0).json();
    assert_eq!((&status["sequence"]["held"], &status["sequence"]["conflicts"]), (&json!(3), &json!(0)));
    place.run(&["held", "skip", "a", "3"]).exits(2).says("--reason");
    place.run(&["held", "skip", "a", "7", "--reason", "a guess"]).exits(2).says("2 to 3");
    let skipped =
        place.run(&["held", "skip", "a", "3", "--reason", "the origin lost them", "--json"]).exits(0).json();
    assert_eq!(skipped["released"], json!(2));
    place.run(&["held", "show", "a"]).exits(1).says("skipped 2 to 3").says("the origin lost them");
    audited(place, &["skip-held"]);
}

pub(crate) async fn conflicts_are_listed_shown_and_resolved(place: &impl Place) {
    let sequencer = Sequencer::new(place.open().await);
    place.run(&["conflicts", "list"]).exits(0).says("nothing contradicts");
    let fed = vec![delivery("a", 1, "right"), delivery("a", 1, "wrong"), delivery("a", 1, "odd")];
    sequencer.ingest(Policy::Contiguous, fed.clone()).await.unwrap();
    place.run(&["conflicts", "list"]).exits(0).says("the log has another event with this revision");
    place.run(&["status"]).exits(0).says("2 events contradict");
    let listed = place.run(&["conflicts", "list", "--json"]).exits(0).json();
    let id = |text: &str| {
        let all = listed.as_array().unwrap();
        let conflict = all.iter().find(|conflict| conflict["event"]["data"] == json!(text)).unwrap();
        conflict["id"].as_str().unwrap().to_owned()
    };
    place.run(&["conflicts", "show", &id("wrong")[..12]]).exits(0).says("\"wrong\"").says("\"right\"");
    place.run(&["conflicts", "show", "zz"]).exits(1).says("no conflict zz");
    place.run(&["conflicts", "keep", &id("wrong"), "--reason", "a test machine"]).exits(0);
    place.run(&["conflicts", "discard", &id("odd")]).exits(0).says("forgotten");
    place.run(&["conflicts", "discard", &id("odd")]).exits(1);
    sequencer.ingest(Policy::Contiguous, fed).await.unwrap();
    let again = place.run(&["conflicts", "list", "--json"]).exits(0).json();
    assert_eq!(again.as_array().unwrap().len(), 1, "what was decided is not asked again: {again}");
    audited(place, &["discard-conflict", "keep-stored"]);
}

pub(crate) async fn rejected_messages_are_submitted_again(place: &impl Place) {
    let store = place.open().await;
    let content = json!({ "cart": "cart-7", "n": 1, "type": "added", "id": "e-1", "data": {} }).to_string();
    let rejected = Rejected {
        source: "orders".to_owned(),
        reason: "it is no CloudEvent".to_owned(),
        since: Timestamp::UNIX_EPOCH,
        attributes: [].into(),
        content: content.into_bytes(),
    };
    store.reject(vec![rejected.clone()]).await.unwrap();
    let id = &rejected.id()[..8];
    place.run(&["rejected", "resubmit", id]).exits(1).says("still no event").says("CloudEvent");
    place.run(&["rejected", "resubmit", id, "--mapping", "{}"]).exits(2).says("a mapping as JSON");
    let mapping = json!({
        "format": "fields", "stream": { "field": "/cart" }, "revision": { "field": "/n" },
        "type": { "field": "/type" }, "id": { "field": "/id" }, "data": "/data",
    })
    .to_string();
    let again = ["rejected", "resubmit", id, "--mapping", &mapping, "--json"];
    let answer = place.run(&again).exits(0).json();
    assert_eq!(answer["became"], "appended", "{answer:#}");
    place.run(&again).exits(1).says("no rejected message");
    let status = place.run(&["status", "--json"]).exits(0).json();
    assert_eq!(status["sequence"]["counts"]["appended"], 1, "{status:#}");
    place.run(&["status"]).exits(0).says("deliveries: 1 appended");
    audited(place, &["resubmit-rejected"]);
}

pub(crate) async fn rejected_messages_are_listed_shown_and_forgotten(place: &impl Place) {
    let store = place.open().await;
    place.run(&["rejected", "list"]).exits(0).says("nothing was rejected");
    let rejected = |content: &[u8]| Rejected {
        source: "orders".to_owned(),
        reason: "it has no type".to_owned(),
        since: Timestamp::UNIX_EPOCH,
        attributes: [("subject".to_owned(), "cart-7".to_owned())].into(),
        content: content.to_vec(),
    };
    store.reject(vec![rejected(b"{\"x\":1}"), rejected(b"\xff")]).await.unwrap();
    place.run(&["rejected", "list"]).exits(0).says("it has no type").says("orders");
    place.run(&["status"]).exits(0).says("2 messages could not be read");
    let id = rejected(b"{\"x\":1}").id();
    for id in [&id[..], &id[..12]] {
        place.run(&["rejected", "show", id]).exits(0).says("{\"x\":1}").says("subject: cart-7");
    }
    let shown = place.run(&["rejected", "show", &rejected(b"\xff").id(), "--json"]).exits(0).json();
    assert_eq!((&shown["content"], &shown["text"]), (&json!([255]), &Value::Null));
    place.run(&["rejected", "forget", &id]).exits(0);
    place.run(&["rejected", "forget", &id]).exits(1).says("no rejected message");
    audited(place, &["forget-rejected"]);
}

pub(crate) async fn tasks_are_listed_shown_retried_and_paused(place: &impl Place) {
    let app = Leftfold::on(place.open().await).projection(CartDetails).start().await.unwrap();
    place.run(&["tasks", "count"]).exits(0).says("there are no reactions");
    place.run(&["tasks", "list"]).exits(0).says("there are no such tasks");
    let client_id = || "ann".to_owned();
    for cart in ["cart-1", "cart-2"] {
        app.append(cart, [ShoppingCartOpened { client_id: client_id() }]).await.unwrap();
    }
    app.caught_up().await.unwrap();
    let mail = Reaction::on(CartDetails, "mail").retry(Retry::never()).run(async |ctx| {
        ctx.document().await?;
        if ctx.id().as_str() == "cart-1" { Err("the server is down".into()) } else { Ok(()) }
    });
    let reacting = Reactor::on(app.store().clone()).reaction(mail).start().await.unwrap();
    reacting.idle().await.unwrap();
    let counted = place.run(&["tasks", "count", "--json"]).exits(0).json();
    assert_eq!(counted[0]["states"], json!({ "done": 1, "failed": 1 }), "{counted:#}");
    place.run(&["tasks", "count"]).exits(0).says("mail");
    let failed = place.run(&["tasks", "list", "--state", "failed", "--json"]).exits(0).json();
    assert_eq!(
        (failed.as_array().unwrap().len(), &failed[0]["document"]),
        (1, &json!("cart-1")),
        "{failed:#}"
    );
    let shown = place.run(&["tasks", "show", "mail", "cart-1"]).exits(0);
    shown.says("mail for cart-1: failed").says("the server is down");
    place.run(&["tasks", "show", "mail", "nobody"]).exits(1).says("has no task");
    place.run(&["tasks", "retry"]).exits(2).says("--all");
    place.run(&["tasks", "retry", "--filter", "{\"$odd\":1}"]).exits(2).says("$odd");
    place.run(&["tasks", "pause", "nothing"]).exits(2).says("the name of a registered reaction");
    place.run(&["tasks", "pause", "mail"]).exits(0).says("paused");
    let retried = place.run(&["tasks", "retry", "--error", "SERVER", "--json"]).exits(0).json();
    assert_eq!(retried["retried"], 1);
    reacting.idle().await.unwrap();
    let waiting = place.run(&["tasks", "list", "--state", "pending", "--json"]).exits(0).json();
    assert_eq!(waiting.as_array().unwrap().len(), 1, "it is paused: {waiting:#}");
    place.run(&["tasks", "resume", "mail"]).exits(0).says("resumed");
    reacting.idle().await.unwrap();
    let again = place.run(&["tasks", "show", "mail", "cart-1", "--json"]).exits(0).json();
    let claims = again["epoch"].as_u64().unwrap() - failed[0]["epoch"].as_u64().unwrap();
    assert_eq!((&again["state"], claims), (&json!("failed"), 1), "{again:#}");
    assert_eq!(app.store().registered().await.unwrap().len(), 1);
    reacting.stop(std::time::Duration::from_secs(5)).await;
    app.stop().await;
    audited(place, &["resume-reaction", "retry-tasks", "pause-reaction"]);
}

/// Checks the entries of the audit trail, the newest first. Refused actions are not in it.
#[track_caller]
fn audited(place: &impl Place, actions: &[&str]) {
    let entries = place.run(&["audit", "--json"]).exits(0).json();
    let entries = entries.as_array().unwrap();
    let found: Vec<_> = entries.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(found, actions);
    for entry in entries {
        assert!(entry["actor"].as_str().unwrap().starts_with("cli:"), "{entry}");
    }
}

pub(crate) async fn what_operators_did_is_listed(place: &impl Place) {
    shop(place).await;
    place.run(&["audit"]).exits(0).says("no operator has done anything yet");
    place.run(&["parked", "retry", "--all", "--dry-run"]).exits(0);
    place.run(&["parked", "retry", "--all", "--reason", "the code is mended"]).exits(0);
    place.run(&["refold", "cart_details", "cart-1"]).exits(0);
    place.run(&["rebuild", "open_carts", "--dry-run"]).exits(0);
    place.run(&["rebuild", "open_carts", "--cancel", "--reason", "not today"]).exits(0);
    place.run(&["rebuild", "open_carts", "--cancel"]).exits(0).says("nothing is being rebuilt");
    place.run(&["rebuild", "open_carts"]).exits(0);
    place.run(&["undo", "open_carts", "--reason", "it was better before"]).exits(0);
    audited(place, &["undo", "rebuild", "cancel-rebuild", "rebuild", "refold", "retry-parked"]);
    let entries = place.run(&["audit", "--json", "--limit", "1"]).exits(0).json();
    assert_eq!(entries.as_array().unwrap().len(), 1);
    assert_eq!(
        (&entries[0]["target"], &entries[0]["outcome"]),
        (&json!("open_carts"), &json!("switched back"))
    );
    assert_eq!(entries[0]["reason"], "it was better before");
    let table = place.run(&["audit"]).exits(0).stdout;
    assert!(
        table.contains("retry-parked") && table.lines().all(|line| line.chars().count() <= 80),
        "{table}"
    );
}
