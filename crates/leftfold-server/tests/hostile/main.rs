//! Malicious requests, as bytes on a real socket. Each is refused as the table says, writes
//! nothing, and leaves the server running.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod addresses;
mod bodies;
mod http;
mod tokens;
#[path = "../wire/mod.rs"]
mod wire;

use axum::Router;
use leftfold_server::Listen;
use serde_json::Value;

use self::wire::{Server, get};

/// The expected refusal of a request.
#[derive(Clone, Copy, Debug)]
enum Refused {
    /// Problem details that contain this text.
    Problem(u16, &'static str),
    /// The connection is closed.
    Closed,
}

use Refused::{Closed, Problem};

type Row = (&'static str, Vec<u8>, Refused);

const EVENT: &str = r#"{"type":"shopping-cart-opened","data":{"clientId":"ann"}}"#;

/// Sends each request. Checks that it is refused as expected and that the server's data is
/// unchanged.
async fn refuses(server: &Server, rows: Vec<Row>) {
    let mut before = server.written().await;
    let mut wrong = Vec::new();
    for (name, request, refused) in rows {
        let answer = server.send(&request).await;
        let is_problem = answer.head.contains("content-type: application/problem+json");
        let problem: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        let detail = problem["detail"].as_str().unwrap_or_default();
        let is_so = match refused {
            Problem(status, message) => {
                answer.status == status
                    && is_problem
                    && problem["status"] == status
                    && detail.contains(message)
            }
            Closed => answer.status == 0,
        };
        if !is_so {
            wrong.push(format!("{name}: {refused:?} was expected, not {} {}", answer.status, answer.body));
        }
        assert_eq!(server.get("/healthz").await.status, 200, "after {name}");
        let after = server.written().await;
        if after != before {
            wrong.push(format!("{name}: something was written"));
            before = after;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn open() -> Server {
    Server::start(Listen { hosts: Some(Vec::new()), ..Listen::default() }, Vec::new(), Router::new()).await
}

#[tokio::test]
async fn a_bug_is_told_as_such() {
    let bug = axum::routing::get(|| async { panic!("this is the bug") as &'static str });
    let server = Server::start(Listen::default(), Vec::new(), Router::new().route("/bug", bug)).await;
    refuses(&server, vec![("a bug", get("/bug"), Problem(500, "bug"))]).await;
}

#[tokio::test]
async fn every_answer_says_not_to_guess_and_not_to_keep_it() {
    let server = Server::start(Listen::default(), Vec::new(), Router::new()).await;
    for path in ["/healthz", "/log", "/nothing", "/%zz", "/openapi.json"] {
        let answer = server.get(path).await;
        assert!(answer.head.contains("x-content-type-options: nosniff"), "{path}: {answer:?}");
        assert!(answer.head.contains("cache-control: no-store"), "{path}: {answer:?}");
    }
}
