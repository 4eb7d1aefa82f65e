//! Regular expressions.

use super::{refused, selects};

#[test]
fn patterns_match_as_in_mongodb() {
    selects(r#"{"a":{"$regex":"^b"}}"#, &[r#"{"a":"bob"}"#, r#"{"a":[1,"b"]}"#], &[r#"{"a":"a\nb"}"#, "{}"]);
    selects(r#"{"a":{"$options":"m","$regex":"^b"}}"#, &[r#"{"a":"a\nb"}"#], &[r#"{"a":"ab"}"#]);
    selects(r#"{"a":{"$regex":"a.b","$options":"s"}}"#, &[r#"{"a":"a\nb"}"#], &[]);
    selects(r#"{"a":{"$regex":"a b # and\n","$options":"x"}}"#, &[r#"{"a":"ab"}"#], &[r#"{"a":"a b"}"#]);
    // `$` matches before a line break at the end, and classes cover only ASCII.
    selects(r#"{"a":{"$regex":"b$"}}"#, &[r#"{"a":"b\n"}"#], &[r#"{"a":"b\n\n"}"#]);
    selects(r#"{"a":{"$regex":"^\\w$"}}"#, &[r#"{"a":"_"}"#], &[r#"{"a":"é"}"#]);
    selects(r#"{"a":{"$regex":"^[^\\d]\\D$"}}"#, &[r#"{"a":"a٣"}"#], &[r#"{"a":"a3"}"#]);
    selects(r#"{"a":{"$regex":"É","$options":"i"}}"#, &[r#"{"a":"é"}"#], &[]);
    selects(r#"{"a":{"$not":{"$regex":"b"}}}"#, &["{}", r#"{"a":1}"#], &[r#"{"a":"b"}"#]);
    let value = r#"{"a":{"$regularExpression":{"pattern":"b","options":""}}}"#;
    selects(
        value,
        &[value, r#"{"a":"b"}"#],
        &[r#"{"a":{"$regularExpression":{"pattern":"b","options":"i"}}}"#],
    );
    selects(
        r#"{"a":{"$eq":{"$regularExpression":{"pattern":"b","options":""}}}}"#,
        &[value],
        &[r#"{"a":"b"}"#],
    );
}

#[test]
fn patterns_that_can_not_be_done_are_refused() {
    for pattern in [
        "(?=a)", "(?<!a)b", r"(a)\\1", "a*+", "(?>a)", r"\\v", r"\\<a", "[a&&b]", "[a[b]]", "(?U)a",
        "(?m)^a", "[", "(", r"\\u0061",
    ] {
        refused(&format!(r#"{{"a":{{"$regex":"{pattern}"}}}}"#), "a regular expression");
    }
    refused(r#"{"a":{"$regex":"a","$options":"g"}}"#, "the options i, m, s and x, not g");
    refused(r#"{"a":{"$options":"i"}}"#, "$regex beside $options");
    refused(r#"{"a":{"$regex":5}}"#, "a regular expression as a text");
    refused(r#"{"a":{"$regex":"^$","$options":"m"}}"#, "text must follow ^");
    let large = format!(r#"{{"a":{{"$regex":"{}"}}}}"#, "(a{1000}){1000}");
    refused(&large, "a regular expression");
    let deep = format!(r#"{{"a":{{"$regex":"{}{}"}}}}"#, "(".repeat(10_000), ")".repeat(10_000));
    refused(&deep, "a regular expression");
}
