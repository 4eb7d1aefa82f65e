//! Tokens that are missing, unknown, or without the scope.

use axum::Router;
use leftfold_server::{Listen, Scope, Token};

use crate::wire::{Server, post, raw};
use crate::{EVENT, Problem, refuses};

#[tokio::test]
async fn tokens_are_refused() {
    let (ingests, may_ingest) = Token::generate("ingests", vec![Scope::Ingest]).unwrap();
    let (reads, may_read) = Token::generate("reads", vec![Scope::Read, Scope::Operate]).unwrap();
    let mut server = Server::start(Listen::default(), vec![may_ingest, may_read], Router::new()).await;
    server.bearer = format!("authorization: Bearer {reads}\r\n");
    let write = |authorization: &str| {
        let headers =
            format!("content-type: application/json\r\n{authorization}content-length: {}\r\n", EVENT.len());
        raw("POST /streams/a HTTP/1.1", &headers, EVENT)
    };
    let bearer = |token: &str| write(&format!("authorization: Bearer {token}\r\n"));
    let twice = format!("authorization: Bearer no\r\nauthorization: Bearer {ingests}\r\n");
    let rows = vec![
        ("none", write(""), Problem(401, "Bearer")),
        ("another scope", bearer(&reads), Problem(403, "ingest")),
        ("a part of it", bearer(&ingests[..ingests.len() - 1]), Problem(401, "the token is unknown")),
        ("more than it", bearer(&format!("{ingests}0")), Problem(401, "the token is unknown")),
        ("in capitals", bearer(&ingests.to_uppercase()), Problem(401, "the token is unknown")),
        ("nothing", bearer(""), Problem(401, "Bearer")),
        ("a long one", bearer(&"x".repeat(20_000)), Problem(401, "the token is unknown")),
        ("a very long one", bearer(&"x".repeat(40_000)), Problem(431, "at most 100 headers")),
        ("no text", bearer("\u{80}"), Problem(401, "Bearer")),
        ("another scheme", write(&format!("authorization: Basic {ingests}\r\n")), Problem(401, "Bearer")),
        ("two", write(&twice), Problem(401, "the token is unknown")),
        ("in the query", post(&format!("/streams/a?access_token={ingests}"), EVENT), Problem(401, "Bearer")),
        (
            "before the body is read",
            raw("POST /events HTTP/1.1", "content-length: 1000\r\n", ""),
            Problem(401, "Bearer"),
        ),
    ];
    refuses(&server, rows).await;
    assert_eq!(server.send(&bearer(&ingests)).await.status, 201);
}

#[tokio::test]
async fn refused_authentications_and_requests_are_counted() {
    let (secret, token) = Token::generate("shop", vec![Scope::Read]).unwrap();
    let mut server = Server::start(Listen::default(), vec![token], Router::new()).await;
    for (authorization, status) in [
        ("", 401),
        ("authorization: bearer nobody\r\n", 401),
        (&format!("authorization: bearer {secret}\r\n"), 403),
    ] {
        let request = raw("GET /held HTTP/1.1", authorization, "");
        assert_eq!(server.send(&request).await.status, status, "{authorization}");
    }
    server.bearer = format!("authorization: bearer {secret}\r\n");
    let metrics = server.get("/metrics").await;
    assert_eq!(metrics.status, 200, "{metrics:?}");
    for expected in [
        "leftfold_authentications_refused_total{reason=\"no-token\"} 1",
        "leftfold_authentications_refused_total{reason=\"unknown-token\"} 1",
        "leftfold_authentications_refused_total{reason=\"scope\"} 1",
        "leftfold_http_requests_total{method=\"GET\",route=\"/held\",status=\"401\"} 2",
        "leftfold_http_request_seconds_count{route=\"/held\"} 3",
        "leftfold_memory_used_bytes{use=\"stream\"} 0",
        "process_start_time_seconds ",
    ] {
        assert!(metrics.body.contains(expected), "no {expected} in {}", metrics.body);
    }
}
