//! Filters that are rejected, and their errors.

use super::{refused, selects};

#[test]
fn what_is_wrong_is_said_with_its_place() {
    refused(r#"{"$and":[{"a":1},{"b":{"$foo":1}}]}"#, "at `$and › 1 › b › $foo`");
    refused(r#"{"b":{"$foo":1}}"#, "one of $eq, $ne, $gt");
    refused(r#"{"$where":"1"}"#, "a path, $and, $or or $nor, at `$where`");
    refused("[]", "an object");
    refused(r#"{"$or":[]}"#, "not empty");
    refused(r#"{"$or":{}}"#, "an array, at `$or`");
    refused(r#"{"a":{"$in":5}}"#, "an array, at `a › $in`");
    refused(r#"{"a":{"$in":[{"$gt":1}]}}"#, "does not begin with $");
    refused(r#"{"a":{"$gt":1,"b":2}}"#, "one of $eq");
    refused(
        r#"{"a":{"b":{"$gt":1}}}"#,
        "does not begin with $, in an object to compare with, at `a › b › $gt`",
    );
    refused(r#"{"a":{"$date":"soon"}}"#, "2026-11-16T08:00:00Z");
    refused(r#"{"a":{"$gt":{"$oid":"12"}}}"#, "24 hexadecimal digits");
    refused(r#"{"a":{"$not":{}}}"#, "an object with operators");
    refused(r#"{"a":{"$not":5}}"#, "an object with operators");
    refused(r#"{"a":{"$size":-1}}"#, "0 or more");
    refused(r#"{"a":{"$size":1.5}}"#, "0 or more");
    refused(r#"{"a":{"$type":"text"}}"#, "one of double, string");
    refused(r#"{"a":{"$type":0}}"#, "one of double, string");
    refused(r#"{"a":{"$type":[]}}"#, "at least one type");
    refused(r#"{"a":{"$elemMatch":[]}}"#, "an object, at");
    refused(r#"{"a":{"$all":[{"$elemMatch":{}},5]}}"#, "only objects with $elemMatch");
    refused(r#"{"a":{"$all":[5,{"$elemMatch":{}}]}}"#, "does not begin with $");
    refused(r#"{"a":{"$ne":{"$regularExpression":{"pattern":"a","options":""}}}}"#, "goes after $not");
    refused(r#"{"a":{"$gt":{"$regularExpression":{"pattern":"a","options":""}}}}"#, "no regular expression");
    refused(r#"{"a":{"$undefined":true}}"#, "a value that is defined");
    for path in ["", ".a", "a.", "a..b", "a.$b"] {
        refused(&format!(r#"{{"{path}":1}}"#), "");
    }
    refused(&format!(r#"{{"{}":1}}"#, vec!["a"; 101].join(".")), "at most 100 names");
    let deep = format!(r#"{{"a":{}1{}}}"#, "[".repeat(60), "]".repeat(60));
    refused(&deep, "at most 50 levels");
    refused(&"[".repeat(100_000), "valid JSON");
    refused(r#"{"0.1.2.3.4.5.6":{"$elemMatch":{"7.8.9.10.11.12":1}}}"#, "at most 12 indexes");
}

#[test]
fn the_ways_through_a_document_are_few() {
    // Each number may be a name or an index.
    let path = ["0"; 12].join(".");
    let document = format!("{}1{}", r#"{"0":["#.repeat(50), "]}".repeat(50));
    selects(&format!(r#"{{"{path}":2,"$or":[{{"{path}":{{"$exists":true}}}}]}}"#), &[], &[&document]);
}
