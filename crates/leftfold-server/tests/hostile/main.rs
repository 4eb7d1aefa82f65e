//! Malicious requests, as bytes on a real socket. Each is refused as the table says, writes
//! nothing, and leaves the server running.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../wire/mod.rs"]
mod wire;

use axum::Router;
use leftfold_server::{Listen, Scope, Token};
use serde_json::Value;

use self::wire::{BODY, Server, get, post, post_as, raw};

/// The expected refusal of a request.
#[derive(Clone, Copy, Debug)]
enum Refused {
    /// Problem details that contain this text.
    Problem(u16, &'static str),
    /// The connection is closed.
    Closed,
}

use Refused::{Closed, Problem};

/// The detail for a request that can't be parsed at all.
const NO_HTTP: &str = "not an HTTP/1.1 request";

type Row = (&'static str, Vec<u8>, Refused);

const EVENT: &str = r#"{"type":"shopping-cart-opened","data":{"clientId":"ann"}}"#;

/// Returns an event with this data.
fn with_data(data: &str) -> String {
    EVENT.replace(r#"{"clientId":"ann"}"#, data)
}

fn cloud_event(data: &str) -> String {
    format!(
        r#"{{"specversion":"1.0","id":"a","source":"s","subject":"cart-1","sequence":"1","type":"t","data":{data}}}"#
    )
}

fn chunked(chunks: &[&str]) -> Vec<u8> {
    let chunks: Vec<_> = chunks.iter().map(|chunk| format!("{:x}\r\n{chunk}\r\n", chunk.len())).collect();
    let headers = "content-type: application/json\r\ntransfer-encoding: chunked\r\n";
    raw("POST /streams/a HTTP/1.1", headers, chunks.concat())
}

fn bodies() -> Vec<Row> {
    let large = with_data(&format!("\"{}\"", "x".repeat(BODY)));
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let many = vec![EVENT; 1_001].join(",");
    vec![
        ("too large", post("/streams/a", &large), Problem(413, "60000 bytes")),
        ("too large, in chunks", chunked(&[&large, ""]), Problem(413, "60000 bytes")),
        ("without end", chunked(&vec!["x".repeat(1_000).as_str(); 2_000]), Problem(413, "60000 bytes")),
        (
            "too large for its events",
            post_as("application/x-ndjson", "/events", &large),
            Problem(413, "60000 bytes"),
        ),
        ("nested", post("/streams/a", with_data(&deep)), Problem(400, "recursion limit")),
        ("nested, as what is asked for", post("/tasks/retry", &deep), Problem(400, "recursion limit")),
        (
            "nested, as a CloudEvent",
            post_as("application/cloudevents+json", "/events", cloud_event(&deep)),
            Problem(400, "recursion limit"),
        ),
        (
            "nested, as one of many",
            post_as("application/cloudevents-batch+json", "/events", format!("[{}]", cloud_event(&deep))),
            Problem(400, "recursion limit"),
        ),
        (
            "nested, in a line",
            post_as("application/x-ndjson", "/events", cloud_event(&deep)),
            Problem(400, "recursion limit"),
        ),
        ("a key twice", post("/streams/a", r#"{"type":"a","type":"b","data":1}"#), Problem(400, "twice")),
        (
            "a key twice, within",
            post("/streams/a", with_data(r#"{"a":[{"b":1,"b":2}]}"#)),
            Problem(400, "twice"),
        ),
        (
            "a key twice, escaped",
            post("/streams/a", with_data(r#"{"b":1,"\u0062":2}"#)),
            Problem(400, "twice"),
        ),
        ("no UTF-8", post("/streams/a", b"{\"type\":\"a\",\"data\":\"\xff\xfe\"}"), Problem(400, "unicode")),
        ("half a character", post("/streams/a", with_data(r#""\ud800""#)), Problem(400, "hex escape")),
        ("NaN", post("/streams/a", with_data("NaN")), Problem(400, "expected value")),
        ("Infinity", post("/streams/a", with_data("-Infinity")), Problem(400, "invalid number")),
        ("a huge number", post("/streams/a", with_data("1e999")), Problem(400, "out of range")),
        ("many digits", post("/streams/a", with_data(&"9".repeat(5_000))), Problem(400, "out of range")),
        ("more after it", post("/streams/a", format!("{EVENT}{EVENT}")), Problem(400, "trailing")),
        ("a byte order mark", post("/streams/a", format!("\u{feff}{EVENT}")), Problem(400, "expected value")),
        (
            "too many events",
            post("/streams/a", format!("[{}]", many.replace("{\"clientId\":\"ann\"}", "1"))),
            Problem(400, "1001 events"),
        ),
        (
            "too many CloudEvents",
            post_as(
                "application/cloudevents-batch+json",
                "/events",
                format!("[{}]", vec!["{}"; 10_001].join(",")),
            ),
            Problem(413, "10001 events"),
        ),
        ("none at all", post("/streams/a", "[]"), Problem(400, "0 events")),
        ("an empty body", post("/streams/a", ""), Problem(400, "EOF")),
        (
            "a time that is none",
            post("/streams/a", r#"{"type":"a","data":1,"time":"9999999-01-01"}"#),
            Problem(400, "month"),
        ),
    ]
}

fn names() -> Vec<Row> {
    let long = "x".repeat(5_000);
    let id = |id: &str| post("/streams/a", format!(r#"{{"type":"a","data":1,"id":"{id}"}}"#));
    let key = |key: &str| {
        let headers = format!(
            "content-type: application/json\r\nidempotency-key: {key}\r\ncontent-length: {}\r\n",
            EVENT.len()
        );
        raw("POST /streams/a HTTP/1.1", &headers, EVENT)
    };
    vec![
        ("an id with a line's end", id("a\\nb"), Problem(400, "id")),
        ("an id with NUL", id("a\\u0000b"), Problem(400, "id")),
        ("a long id", id(&long), Problem(400, "id")),
        ("an empty id", id(""), Problem(400, "id")),
        (
            "a type with a control character",
            post("/streams/a", r#"{"type":"a\u0007","data":1}"#),
            Problem(400, "type"),
        ),
        ("a long type", post("/streams/a", format!(r#"{{"type":"{long}","data":1}}"#)), Problem(400, "type")),
        ("a stream with NUL", post("/streams/a%00b", EVENT), Problem(400, "stream")),
        ("a stream with a line's end", post("/streams/a%0d%0ab", EVENT), Problem(400, "stream")),
        ("a long stream", post(&format!("/streams/{long}"), EVENT), Problem(400, "stream")),
        ("a stream that is no UTF-8", post("/streams/a%ff", EVENT), Problem(400, "UTF-8")),
        ("a stream without a name", post("/streams/", EVENT), Problem(404, "openapi")),
        ("a key without a value", key(""), Problem(400, "Idempotency-Key")),
        ("a long key", key(&"k".repeat(201)), Problem(400, "Idempotency-Key")),
        ("a key of other characters", key("ä"), Problem(400, "Idempotency-Key")),
        ("% and no digits", post("/streams/%zz", EVENT), Problem(400, "hexadecimal")),
        ("% at the end", post("/streams/a%", EVENT), Problem(400, "hexadecimal")),
        ("% in the query", get("/log?after=%"), Problem(400, "hexadecimal")),
        ("a path upwards", get("/../../etc/passwd"), Problem(404, "openapi")),
        (
            "a path upwards, encoded",
            get("/collections/..%2f..%2fetc%2fpasswd/documents/a"),
            Problem(404, "collection"),
        ),
        ("a path upwards, behind a name", get("/streams/../metrics/x"), Problem(404, "openapi")),
        (
            "a collection with NUL",
            get("/collections/cart_details%00/documents/a"),
            Problem(404, "collection"),
        ),
        ("a document with NUL", get("/collections/cart_details/documents/a%00"), Problem(400, "document")),
        ("a long counter", post(&format!("/counters/{long}"), ""), Problem(400, "255 bytes")),
    ]
}

fn queries() -> Vec<Row> {
    let list = |query: &str| get(&format!("/collections/cart_details/documents?{query}"));
    let filter = |filter: &str| {
        let encoded: Vec<_> = filter.bytes().map(|byte| format!("%{byte:02x}")).collect();
        list(&format!("filter={}", encoded.concat()))
    };
    let nested = |what: &str, depth: usize| format!("{}1{}", what.repeat(depth), "}".repeat(depth));
    let document = |query: &str| get(&format!("/collections/cart_details/documents/a?{query}"));
    vec![
        ("at_least is garbage", document("at_least=garbage"), Problem(400, "partition:position")),
        (
            "at_least is too large",
            document("at_least=0:99999999999999999999:1:a"),
            Problem(400, "partition:position"),
        ),
        ("at is garbage", document("at=-1"), Problem(400, "at: ")),
        ("wait is negative", document("wait=-1s"), Problem(400, "60s")),
        ("wait is for ever", document("wait=1000000h"), Problem(400, "60s")),
        ("limit is negative", list("limit=-1"), Problem(400, "limit")),
        ("limit is huge", list("limit=99999999999999999999999"), Problem(400, "limit")),
        ("limit is large", list("limit=1001"), Problem(400, "1 to 1000")),
        ("limit comes twice", list("limit=1&limit=2"), Problem(400, "duplicate")),
        ("a parameter that nobody knows", list("limits=1"), Problem(400, "limits")),
        ("after has a control character", list("after=a%07"), Problem(400, "document")),
        ("$where", filter(r#"{"$where":"sleep(1000)"}"#), Problem(400, "$where")),
        ("$function", filter(r#"{"$expr":{"$function":{}}}"#), Problem(400, "$")),
        ("a nested filter", filter(&nested(r#"{"a":"#, 1_000)), Problem(400, "recursion limit")),
        ("nested operators", filter(&nested(r#"{"$not":"#, 100)), Problem(400, "$not")),
        (
            "a regular expression without bounds",
            filter(r#"{"a":{"$regex":"((a{999}){999}){999}"}}"#),
            Problem(400, "regex"),
        ),
        ("a filter that is none", filter("[]"), Problem(400, "filter")),
        ("expected is negative", post("/streams/a?expected=-1", EVENT), Problem(400, "expected")),
        ("count is huge", post("/counters/a?count=18446744073709551615", ""), Problem(400, "count")),
    ]
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
        ("a page of somebody else", origin("https://evil.example"), Problem(403, "Origin")),
        ("a page of nobody", origin("null"), Problem(403, "Origin")),
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
            Problem(status, said) => {
                answer.status == status && is_problem && problem["status"] == status && detail.contains(said)
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
async fn bodies_are_refused() {
    refuses(&open().await, bodies()).await;
}

#[tokio::test]
async fn names_are_refused() {
    refuses(&open().await, names()).await;
}

#[tokio::test]
async fn queries_are_refused() {
    refuses(&open().await, queries()).await;
}

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
async fn a_bug_is_told_as_such() {
    let bug = axum::routing::get(|| async { panic!("this is the bug") as &'static str });
    let server = Server::start(Listen::default(), Vec::new(), Router::new().route("/bug", bug)).await;
    refuses(&server, vec![("a bug", get("/bug"), Problem(500, "bug"))]).await;
}

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

#[tokio::test]
async fn every_answer_says_not_to_guess_and_not_to_keep_it() {
    let server = Server::start(Listen::default(), Vec::new(), Router::new()).await;
    for path in ["/healthz", "/log", "/nothing", "/%zz", "/openapi.json"] {
        let answer = server.get(path).await;
        assert!(answer.head.contains("x-content-type-options: nosniff"), "{path}: {answer:?}");
        assert!(answer.head.contains("cache-control: no-store"), "{path}: {answer:?}");
    }
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
