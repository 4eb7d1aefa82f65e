//! Bodies that are too large, or that are not the JSON that the log accepts.

use crate::wire::{BODY, post, post_as, raw};
use crate::{EVENT, Problem, Row, open, refuses};

#[tokio::test]
async fn bodies_are_refused() {
    refuses(&open().await, bodies()).await;
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
        (
            "a key twice",
            post("/streams/a", r#"{"type":"a","type":"b","data":1}"#),
            Problem(400, "duplicate key"),
        ),
        (
            "a key twice, within",
            post("/streams/a", with_data(r#"{"a":[{"b":1,"b":2}]}"#)),
            Problem(400, "duplicate key"),
        ),
        (
            "a key twice, escaped",
            post("/streams/a", with_data(r#"{"b":1,"\u0062":2}"#)),
            Problem(400, "duplicate key"),
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
