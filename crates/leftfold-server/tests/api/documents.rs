//! Documents: read back, at earlier states, listed, parked, damaged.

use std::collections::BTreeSet;

use leftfold::{Expected, Json, Leftfold, Memory, NewEvent};
use leftfold_server::Service;
use serde_json::json;
use shopping_cart::CartDetails;

use crate::client::{added, get, opened, post, send, shop};

#[tokio::test]
async fn what_is_appended_is_read_back_as_a_document() {
    let (router, _) = shop(Vec::new()).await;
    let first = post(&router, "/streams/cart-1?expected=0", &json!([opened(), added(2)])).await.is(201);
    assert_eq!((&first["revision"], &first["events"]), (&json!(2), &json!(2)));
    let second = post(&router, "/streams/cart-1?expected=2", &added(1)).await.is(201);
    let token = second["bookmark"].as_str().unwrap();
    let read = get(&router, &format!("/collections/cart_details/documents/cart-1?at_least={token}")).await;
    assert_eq!(read.is(200)["items"]["shoes"]["quantity"], 3);

    let tag = read.headers["etag"].to_str().unwrap();
    let path = "/collections/cart_details/documents/cart-1";
    for known in [tag.to_owned(), format!("\"other\", W/{tag}"), "*".to_owned()] {
        let again = send(&router, "GET", path, &[("if-none-match", &known)], "").await;
        assert_eq!(
            (again.status, again.text.as_str(), &again.headers["etag"]),
            (304, "", &read.headers["etag"])
        );
    }
    send(&router, "GET", path, &[("if-none-match", "\"other\"")], "").await.is(200);

    assert_eq!(get(&router, &format!("{path}?at=2")).await.is(200)["items"]["shoes"]["quantity"], 2);
    assert_eq!(get(&router, &format!("{path}?at=1")).await.is(200)["items"], json!({}));
    get(&router, &format!("{path}?at=0")).await.is(404);
    get(&router, &format!("{path}?at=2020-01-01T00:00:00Z")).await.is(404);
    get(&router, &format!("{path}?at=yesterday")).await.is(400);

    let events = get(&router, "/streams/cart-1?after=1&limit=1").await.is(200);
    assert_eq!(events["events"].as_array().unwrap().len(), 1);
    assert_eq!(events["events"][0]["revision"], 2);
    let explained = get(&router, &format!("{path}/explanation")).await.is(200);
    assert_eq!(explained["events"].as_array().unwrap().len(), 3);
    let explained = get(&router, &format!("{path}/explanation?at=cart-1@2")).await.is(200);
    assert_eq!(explained["events"].as_array().unwrap().len(), 2);
    assert!(explained.get("next").is_none(), "{explained}");
    let (mut parts, mut next) = (Vec::new(), String::new());
    loop {
        let part = get(&router, &format!("{path}/explanation?limit=1{next}")).await.is(200);
        parts.extend(part["events"].as_array().unwrap().clone());
        let Some(cursor) = part["next"].as_str() else { break };
        next = format!("&after={cursor}");
    }
    assert_eq!(json!(parts), get(&router, &format!("{path}/explanation")).await.is(200)["events"]);
    get(&router, &format!("{path}/explanation?after=here")).await.is(400);
    get(&router, &format!("{path}/explanation?limit=0")).await.is(400);
    get(&router, "/collections/cart_details/documents/cart-9/explanation").await.is(404);
    assert_eq!(get(&router, &format!("{path}/absence")).await.is(200)["reasons"][0]["why"], "there");
    let never = get(&router, "/collections/cart_details/documents/cart-9/absence").await.is(200);
    assert_eq!(never["reasons"][0]["why"], "never-routed");
    assert!(never["reasons"][0]["said"].as_str().unwrap().contains("no event"), "{never}");
}

#[tokio::test]
async fn documents_are_listed_and_filtered_in_pages() {
    let (router, _) = shop(Vec::new()).await;
    let mut token = String::new();
    for number in 0..25 {
        let events = json!([opened(), added(1 + number % 5)]);
        let answer = post(&router, &format!("/streams/cart-{number:02}"), &events).await.is(201);
        token = answer["bookmark"].as_str().unwrap().to_owned();
    }
    get(&router, &format!("/collections/cart_details/documents/cart-24?at_least={token}")).await.is(200);
    let filter = "%7B%22items.shoes.quantity%22%3A%7B%22%24gte%22%3A4%7D%7D"; // {"items.shoes.quantity":{"$gte":4}}
    for (query, expected) in [(String::new(), 25), (format!("&filter={filter}"), 10)] {
        let (mut found, mut after) = (BTreeSet::new(), String::new());
        loop {
            let page = get(&router, &format!("/collections/cart_details/documents?limit=4{after}{query}"))
                .await
                .is(200);
            let documents = page["documents"].as_array().unwrap();
            assert!(documents.len() <= 4);
            found.extend(documents.iter().map(|one| one["id"].as_str().unwrap().to_owned()));
            match page["after"].as_str() {
                Some(last) => after = format!("&after={last}"),
                None => break,
            }
        }
        assert_eq!(found.len(), expected, "{query}");
    }
    get(&router, "/collections/cart_details/documents?filter=%7B%22a%22%3A%7B%22%24near%22%3A1%7D%7D")
        .await
        .is(400);
}

#[tokio::test]
async fn a_parked_document_is_reported_and_retried() {
    let (router, _) = shop(Vec::new()).await;
    let answer = post(&router, "/streams/cart-1", &json!([added(1)])).await.is(201);
    let token = answer["bookmark"].as_str().unwrap();
    let read =
        get(&router, &format!("/collections/cart_details/documents/cart-1?at_least={token}")).await.is(409);
    assert_eq!(read["type"], "urn:leftfold:problem:parked");
    let parked = get(&router, "/collections/cart_details/parked").await.is(200);
    assert_eq!(parked["parked"][0]["unit"], json!({ "document": "cart-1" }));
    let retried =
        post(&router, "/collections/cart_details/parked/retry", &json!({ "documents": ["cart-1"] }))
            .await
            .is(200);
    assert_eq!(retried["outcomes"][0]["outcome"], "still-failing");
    let status = get(&router, "/status").await.is(200);
    assert_eq!(status["projections"][0]["parked_documents"], 1);
}

/// An earlier version accepted such data from brokers.
#[tokio::test]
async fn data_that_nobody_can_read_is_shown_as_it_is() {
    let app = Leftfold::on(Memory::default()).projection(CartDetails).start().await.unwrap();
    let (router, _) = Service::new(app.clone()).await.unwrap().router();
    let nested = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
    let events = [nested.as_str(), "1e999"]
        .map(|data| NewEvent::new("a", Json::stored(data).assume_strict()).unwrap());
    app.append_events("cart-1", Expected::Any, events.to_vec()).await.unwrap();
    for path in ["/streams/cart-1", "/log"] {
        let answer = get(&router, path).await;
        assert!(answer.status == 200 && answer.text.contains(&nested) && answer.text.contains("1e999"));
    }
}
