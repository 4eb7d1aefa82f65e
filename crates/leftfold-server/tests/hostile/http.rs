//! Violations of HTTP itself.

use leftfold_server::Listen;

use crate::wire::{Server, get, post, post_as, raw};
use crate::{Closed, EVENT, Problem, Row, open, refuses};
use axum::Router;

/// The detail for a request that can't be parsed at all.
const NO_HTTP: &str = "not an HTTP/1.1 request";

#[tokio::test]
async fn what_is_no_proper_http_is_refused() {
    refuses(&open().await, http()).await;
}

/// With both a length and chunks, a proxy in front of the server may go by the other one. The rest
/// of the body would then be a request of its own.
#[tokio::test]
async fn what_is_hidden_behind_a_body_is_no_request() {
    let server = open().await;
    let chunk = format!("{:x}\r\n{EVENT}\r\n0\r\n\r\n", EVENT.len());
    let hidden = String::from_utf8(post("/streams/hidden", EVENT)).unwrap();
    let length = format!("content-length: {}\r\n", chunk.len() + hidden.len());
    let lengths = [
        format!("{length}transfer-encoding: chunked\r\n"),
        format!("transfer-encoding: chunked\r\n{length}"),
    ];
    for lengths in lengths {
        let head = "POST /streams/shown HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
        let answer = server.send(format!("{head}\r\n{lengths}\r\n{chunk}{hidden}").as_bytes()).await;
        assert_eq!((answer.status, answer.body.matches("HTTP/1.1").count()), (201, 0), "{answer:?}");
        assert_eq!(server.get("/streams/hidden").await.body, r#"{"events":[]}"#);
    }
}

#[tokio::test]
async fn requests_that_are_no_http_are_told_so() {
    let server = Server::start(Listen::default(), Vec::new(), Router::new()).await;
    let many = "a: b\r\n".repeat(200);
    let long = format!("a: {}\r\n", "b".repeat(40_000));
    for (request, status, kind) in [
        ("\u{16}\u{3}\u{1}\r\n\r\n".to_owned(), 400, "invalid"),
        ("GET /log HTTP/1.1\r\nno header\r\n\r\n".to_owned(), 400, "invalid"),
        (format!("GET /log HTTP/1.1\r\n{many}\r\n"), 431, "headers-too-large"),
        (format!("GET /log HTTP/1.1\r\n{long}\r\n"), 431, "headers-too-large"),
    ] {
        let answer = server.send(request.as_bytes()).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(answer.body.contains(&format!("urn:leftfold:problem:{kind}")), "{answer:?}");
        assert!(answer.head.contains("application/problem+json"), "{answer:?}");
    }
    assert_eq!(server.get("/healthz").await.status, 200);
}

fn http() -> Vec<Row> {
    let length = EVENT.len();
    let sent = |headers: &str, body: &str| {
        raw("POST /streams/a HTTP/1.1", &format!("content-type: application/json\r\n{headers}"), body)
    };
    let chunk = format!("{length:x}\r\n{EVENT}\r\n0\r\n\r\n");
    let many = (0..150).map(|number| format!("x-{number}: a\r\n")).collect::<Vec<_>>().concat();
    let origin = |origin: &str| sent(&format!("origin: {origin}\r\ncontent-length: {length}\r\n"), EVENT);
    vec![
        (
            "two lengths",
            sent(&format!("content-length: {length}\r\ncontent-length: 1\r\n"), EVENT),
            Problem(400, NO_HTTP),
        ),
        (
            "chunks within something",
            sent("transfer-encoding: chunked, gzip\r\n", &chunk),
            Problem(400, NO_HTTP),
        ),
        ("a negative length", sent("content-length: -1\r\n", EVENT), Problem(400, NO_HTTP)),
        (
            "a length with a sign",
            sent(&format!("content-length: +{length}\r\n"), EVENT),
            Problem(400, NO_HTTP),
        ),
        (
            "a length without end",
            sent("content-length: 99999999999999999999999\r\n", EVENT),
            Problem(400, NO_HTTP),
        ),
        (
            "a chunk of no size",
            sent("transfer-encoding: chunked\r\n", "zz\r\n"),
            Problem(400, "reading the body"),
        ),
        (
            "a chunk of too large a size",
            sent("transfer-encoding: chunked\r\n", "fffffffffffffffff\r\n"),
            Problem(400, "reading the body"),
        ),
        (
            "a header that is too large",
            raw("GET /log HTTP/1.1", &format!("x: {}\r\n", "x".repeat(40_000)), ""),
            Problem(431, "at most 100 headers"),
        ),
        ("too many headers", raw("GET /log HTTP/1.1", &many, ""), Problem(431, "at most 100 headers")),
        (
            "a path that is too long",
            get(&format!("/{}", "x".repeat(70_000))),
            Problem(431, "at most 100 headers"),
        ),
        ("a header with NUL", raw("GET /log HTTP/1.1", "x: a\0b\r\n", ""), Problem(400, NO_HTTP)),
        ("a header that goes on", raw("GET /log HTTP/1.1", "x: a\r\n b\r\n", ""), Problem(400, NO_HTTP)),
        ("a space before the colon", raw("GET /log HTTP/1.1", "x : a\r\n", ""), Problem(400, NO_HTTP)),
        ("no such method", raw("BREW /log HTTP/1.1", "", ""), Problem(405, "openapi")),
        ("no method at all", raw("G(T /log HTTP/1.1", "", ""), Problem(400, NO_HTTP)),
        ("another method", raw("DELETE /streams/a HTTP/1.1", "", ""), Problem(405, "openapi")),
        ("CONNECT", raw("CONNECT evil.example:443 HTTP/1.1", "", ""), Problem(421, "Host")),
        ("no such version", raw("GET /log HTTP/3.7", "", ""), Problem(400, NO_HTTP)),
        ("HTTP/2 in the clear", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), Closed),
        ("no HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), Problem(400, NO_HTTP)),
        ("HTTP/1.0 without a host", b"GET /log HTTP/1.0\r\n\r\n".to_vec(), Problem(421, "Host")),
        (
            "HTTP/1.1 without a host",
            b"GET /log HTTP/1.1\r\nconnection: close\r\n\r\n".to_vec(),
            Problem(400, "Host"),
        ),
        ("two hosts", raw("GET /log HTTP/1.1", "host: localhost\r\n", ""), Problem(400, "Host")),
        (
            "another host",
            b"GET /log HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n".to_vec(),
            Problem(421, "Host"),
        ),
        ("another host in the first line", get("http://evil.example/log"), Problem(421, "Host")),
        ("a page of another site", origin("https://evil.example"), Problem(403, "Origin")),
        ("a page without an origin", origin("null"), Problem(403, "Origin")),
        (
            "a form",
            post_as("application/x-www-form-urlencoded", "/streams/a", EVENT),
            Problem(415, "application/json"),
        ),
        ("a text", post_as("text/plain", "/streams/a", EVENT), Problem(415, "application/json")),
        ("a text as an event", post_as("text/plain", "/events", EVENT), Problem(415, "cloudevents")),
        ("JSON as an event", post("/events", EVENT), Problem(415, "cloudevents")),
    ]
}
