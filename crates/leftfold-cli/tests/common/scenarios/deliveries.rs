//! Commands for deliveries that are not in the log, on any store.

use std::sync::Arc;

use jiff::Timestamp;
use leftfold::log::Entry;
use leftfold::sequence::Rejected;
use leftfold::{
    Delivery, EventId, EventKind, Json, Leftfold, Policy, Revision, Sequencer, Sequences as _, StreamId,
};
use serde_json::{Value, json};
use shopping_cart::CartDetails;

use super::audited;
use crate::common::Place;

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
    let store = place.open().await;
    Leftfold::on(store.clone()).projection(CartDetails).open().await.unwrap();
    let sequencer = Sequencer::new(store);
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
    place.run(&["held", "show", "c"]).exits(1).says("no event of c is held");
    let get = ["get", "cart_details", "a", "--timeout", "0", "--at-least"];
    let held = place.run(&[&get[..], &["a@5"]].concat()).exits(1);
    held.says("revision 5 of a is held: revision 2 is missing since");
    place.run(&[&get[..], &["a@3"]].concat()).exits(1).says("neither in the log nor held");
    place.run(&[&get[..], &["a@one"]].concat()).exits(2).says("expected stream@revision");
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
    place.run(&["conflicts", "list"]).exits(0).says("no event contradicts the log");
    let fed = vec![delivery("a", 1, "right"), delivery("a", 1, "wrong"), delivery("a", 1, "odd")];
    sequencer.ingest(Policy::Contiguous, fed.clone()).await.unwrap();
    place.run(&["conflicts", "list"]).exits(0).says("a@1").says("noted");
    place.run(&["status"]).exits(0).says("2 events contradict");
    let listed = place.run(&["conflicts", "list", "--json"]).exits(0).json();
    let id = |text: &str| {
        let all = listed.as_array().unwrap();
        let conflict = all.iter().find(|conflict| conflict["event"]["data"] == json!(text)).unwrap();
        conflict["id"].as_str().unwrap().to_owned()
    };
    place.run(&["conflicts", "show", &id("wrong")[..12]]).exits(0).says("\"wrong\"").says("\"right\"");
    let shown = place.run(&["conflicts", "show", &id("wrong")]).exits(0);
    shown.says("a@1: the log has another event with this revision");
    place.run(&["conflicts", "show", "zz"]).exits(1).says("no conflict has the id zz");
    place.run(&["conflicts", "keep", &id("wrong"), "--reason", "a test machine"]).exits(0);
    place.run(&["conflicts", "discard", &id("odd")]).exits(0).says("deleted");
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
    place.run(&again).exits(1).says("no rejected message has the id");
    let status = place.run(&["status", "--json"]).exits(0).json();
    assert_eq!(status["sequence"]["counts"]["appended"], 1, "{status:#}");
    place.run(&["status"]).exits(0).says("deliveries: 1 appended");
    audited(place, &["resubmit-rejected"]);
}

pub(crate) async fn rejected_messages_are_listed_shown_and_forgotten(place: &impl Place) {
    let store = place.open().await;
    place.run(&["rejected", "list"]).exits(0).says("no message was rejected");
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
    place.run(&["rejected", "forget", &id]).exits(1).says("no rejected message has the id");
    audited(place, &["forget-rejected"]);
}
