//! Names in paths and bodies, and parameters of queries.

use crate::wire::{get, post, raw};
use crate::{EVENT, Problem, Row, open, refuses};

#[tokio::test]
async fn names_are_refused() {
    refuses(&open().await, names()).await;
}

#[tokio::test]
async fn queries_are_refused() {
    refuses(&open().await, queries()).await;
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
        ("an unknown parameter", list("limits=1"), Problem(400, "limits")),
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
