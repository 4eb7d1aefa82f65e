//! Commands that repair documents, on any store.

use leftfold::{Expected, Json, NewEvent};
use serde_json::json;

use super::{audited, fold, shoes, shop};
use crate::common::Place;

pub(crate) async fn parked_documents_are_listed_and_retried(place: &impl Place) {
    shop(place).await;
    place.run(&["parked", "list"]).exits(0).says("cart-1@3").says("the new type is unknown");
    let listed = place.run(&["parked", "list", "cart_details", "--json"]).exits(0).json();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!((&listed[0]["unit"], &listed[0]["id"]), (&json!("document"), &json!("cart-1")));
    assert_eq!(listed[0]["parked"]["kind"], "shopping-cart-confirmed");
    place.run(&["parked", "list", "open_carts"]).exits(0).says("nothing is parked");

    place.run_with_code(&["parked", "retry", "--all", "--dry-run"]).exits(0).says("1 would be repaired");
    place.run(&["parked", "list"]).says("cart-1@3");
    place.run_with_code(&["parked", "retry", "cart_details", "cart-2"]).exits(0).says("not parked");
    let repaired =
        place.run_with_code(&["parked", "retry", "cart_details", "cart-1", "--json"]).exits(0).json();
    let expected = json!({
        "collection": "cart_details", "unit": "document", "id": "cart-1", "outcome": "repaired", "error": null,
    });
    assert_eq!(repaired, json!([expected]));
    assert_eq!(place.run(&["parked", "list", "--json"]).json(), json!([]));
    place.run_with_code(&["parked", "retry", "cart_details"]).exits(0).says("nothing to repair");
    place.run(&["get", "cart_details", "cart-1"]).exits(0).says("confirmed");
    place.run_with_code(&["verify"]).exits(0).says("cart_details: 2 documents checked, 0 differ");
}

pub(crate) async fn what_still_fails_stays_parked(place: &impl Place) {
    fold(place, async |app| drop(app.append("cart-1", [shoes(1)]).await.unwrap())).await;
    place
        .run_with_code(&["parked", "retry", "--all"])
        .exits(1)
        .says("the cart is not open")
        .says("still failing");
    place.run_with_code(&["refold", "cart_details", "cart-1"]).exits(1).says("the cart is not open");
    let steps = place.run_with_code(&["explain", "cart_details", "cart-1", "--json"]).exits(0).json();
    let failed = steps[0]["effect"]["failed"].as_str().unwrap();
    assert!(failed.contains("the cart is not open"), "{failed}");
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
    place.run_with_code(&retry).exits(1).says("clientId");
    let all = place.run_with_code(&["parked", "retry", "--all", "--streams", "--json"]).exits(1).json();
    let units: Vec<_> = all.as_array().unwrap().iter().map(|one| &one["unit"]).collect();
    assert_eq!(units, ["stream", "stream"], "{all:#}");
}

pub(crate) async fn refold_makes_a_document_what_its_events_make_of_it(place: &impl Place) {
    shop(place).await;
    place.run_with_code(&["refold", "client_summary", "bob"]).exits(0).says("it is unchanged");
    place.spoil("client_summary", "bob", "opened").await;
    let refolded = place.run_with_code(&["refold", "client_summary", "bob", "--json"]).exits(0).json();
    assert_eq!((&refolded["changed"], &refolded["document"]["opened"]), (&json!(true), &json!(1)));
    place.run_with_code(&["refold", "client_summary", "zoe"]).exits(1).says("no event makes such a document");
}

pub(crate) async fn what_operators_did_is_listed(place: &impl Place) {
    shop(place).await;
    place.run(&["audit"]).exits(0).says("no operator has acted yet");
    place.run_with_code(&["parked", "retry", "--all", "--dry-run"]).exits(0);
    place.run_with_code(&["parked", "retry", "--all", "--reason", "the code is fixed"]).exits(0);
    place.run_with_code(&["refold", "cart_details", "cart-1"]).exits(0);
    place.run_with_code(&["rebuild", "open_carts", "--dry-run"]).exits(0);
    place.run_with_code(&["rebuild", "open_carts", "--cancel", "--reason", "not today"]).exits(0);
    place.run_with_code(&["rebuild", "open_carts", "--cancel"]).exits(0).says("nothing is being rebuilt");
    place.run_with_code(&["rebuild", "open_carts"]).exits(0);
    place.run_with_code(&["undo", "open_carts", "--reason", "it was better before"]).exits(0);
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
