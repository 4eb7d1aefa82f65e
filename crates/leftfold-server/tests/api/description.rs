//! The `OpenAPI` document and the refusals of requests that do not follow it.

use leftfold_server::{Scope, Token};
use serde_json::{Value, json};

use crate::client::{Answer, added, get, opened, post, send, shop};

/// An operation has one table entry, and with it the same answers to a wrong method.
#[tokio::test]
async fn every_path_refuses_other_methods_alike() {
    let (router, _) = shop(Vec::new()).await;
    for (path, allowed) in [("/events", "POST"), ("/streams/a", "POST,GET,HEAD")] {
        let refused = send(&router, "DELETE", path, &[], "").await;
        assert!(refused.is(405)["detail"].as_str().unwrap().contains("/openapi.json"), "{path}");
        assert_eq!(refused.headers["allow"], allowed, "{path}");
    }
}

#[tokio::test]
async fn bad_requests_say_what_was_expected() {
    let (router, _) = shop(Vec::new()).await;
    let json = [("content-type", "application/json")];
    for (method, path, body, status, expected) in [
        ("GET", "/nothing", "", 404, "/openapi.json"),
        ("DELETE", "/streams/a", "", 405, "/openapi.json"),
        ("GET", "/collections/nothing/documents/a", "", 404, "cart_details, client_summary"),
        ("GET", "/collections/cart_details/documents/a", "", 404, "has no document"),
        ("GET", "/streams/a?limit=0", "", 400, "1 to 1000"),
        ("GET", "/streams/a?limits=3", "", 400, "limits"),
        ("GET", "/log?wait=1h", "", 400, "at most 60s"),
        ("GET", "/log?after=1-2-3", "", 400, "not a place in this log"),
        (
            "GET",
            "/collections/cart_details/documents/a?at_least=x",
            "",
            400,
            "partition:position:revision:stream",
        ),
        ("GET", "/streams/a%FF", "", 400, "UTF-8"),
        ("POST", "/streams/a", "{", 400, "EOF"),
        ("POST", "/streams/a", "[]", 400, "0 events"),
        ("POST", "/streams/a", r#"{"type":"a","data":1,"stray":2}"#, 400, "stray"),
        ("POST", "/streams/a", r#"{"type":"","data":1}"#, 400, "event type"),
        ("POST", "/tasks/retry", "{}", 400, "all"),
        ("GET", "/tasks/a/b", "", 404, "reaction a has no task for document b"),
        ("POST", "/conflicts/x/discard", "", 404, "conflict x does not exist"),
        ("POST", "/rejected/x/forget", "", 404, "rejected message x does not exist"),
    ] {
        let answer = send(&router, method, path, &json, body).await;
        let problem = answer.is(status);
        assert!(problem["detail"].as_str().unwrap().contains(expected), "{method} {path}: {problem}");
    }
    let large = format!("{{\"type\":\"a\",\"data\":\"{}\"}}", "x".repeat(20_000));
    send(&router, "POST", "/streams/a", &json, &large).await.is(413);
    send(&router, "POST", "/streams/a", &[("content-type", "text/plain")], "{}").await.is(415);
    send(&router, "POST", "/streams/a", &[("idempotency-key", "")], "{\"type\":\"a\",\"data\":1}")
        .await
        .is(400);
}

#[tokio::test]
async fn every_operation_that_is_described_is_there_and_guarded() {
    let (secret, token) = Token::generate("nobody", Vec::new()).unwrap();
    let (router, _) = shop(vec![token]).await;
    let description = get(&router, "/openapi.json").await.is(200);
    assert!(description["paths"]["/events"]["post"].is_object());
    let mut guarded = 0;
    for (path, operations) in description["paths"].as_object().unwrap() {
        let uri = path.replace(['{', '}'], "");
        for (method, operation) in operations.as_object().unwrap() {
            let method = method.to_uppercase();
            let answer = send(&router, &method, &uri, &[], "").await;
            if operation.get("security").is_none() {
                answer_is_described(&answer, operation);
                continue;
            }
            guarded += 1;
            answer.is(401);
            let parameters = operation["parameters"].as_array().unwrap();
            let has_key = parameters.iter().any(|one| one["name"] == "Idempotency-Key");
            assert_eq!(has_key, method == "POST", "{method} {path}");
            let allowed = operation["security"][0]["token"][0].as_str().unwrap().parse::<Scope>();
            assert!(allowed.is_ok());
            let bearer = format!("Bearer {secret}");
            send(&router, &method, &uri, &[("authorization", &bearer)], "").await.is(403);
        }
    }
    assert!(guarded > 25, "{guarded}");
}

#[track_caller]
fn answer_is_described(answer: &Answer, operation: &Value) {
    let responses = operation["responses"].as_object().unwrap();
    assert!(responses.contains_key(&answer.status.to_string()), "{}: {operation}", answer.status);
}

#[tokio::test]
async fn what_is_answered_is_described() {
    let (router, _) = shop(Vec::new()).await;
    post(&router, "/streams/stream", &json!([opened(), added(1)])).await.is(201);
    let description = get(&router, "/openapi.json").await.is(200);
    for (path, operations) in description["paths"].as_object().unwrap() {
        let uri =
            path.replace("{collection}", "cart_details").replace("{id}", "stream").replace(['{', '}'], "");
        let is_endless = path.ends_with("/changes");
        for (method, operation) in operations.as_object().unwrap().iter().filter(|_| !is_endless) {
            let names = operation["parameters"].as_array().unwrap().iter().filter(|one| one["in"] == "query");
            for name in names {
                // Each described parameter is known: only its value is wrong.
                let uri = format!("{uri}?{}=%00", name["name"].as_str().unwrap());
                let answer = send(&router, &method.to_uppercase(), &uri, &[], "").await;
                assert!(!answer.text.contains("unknown field"), "{uri}: {}", answer.text);
            }
            let answer = send(&router, &method.to_uppercase(), &uri, &[], "").await;
            let is_described =
                operation["responses"].as_object().unwrap().contains_key(&answer.status.to_string());
            assert!(
                is_described || answer.status == 400,
                "{method} {uri}: {} {}",
                answer.status,
                answer.text
            );
        }
    }
}
