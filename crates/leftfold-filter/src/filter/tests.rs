use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn filter(text: &str) -> Filter {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap()
}

#[track_caller]
fn selects(text: &str, yes: &[&str], no: &[&str]) {
    let filter = filter(text);
    for (documents, expected) in [(yes, true), (no, false)] {
        for document in documents {
            let value: Value = document.parse().unwrap();
            assert_eq!(filter.matches(&value, at(1_000)), expected, "{text} on {document}");
        }
    }
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    let error = text.parse::<Filter>().expect_err(text).to_string();
    assert!(error.contains(expected), "{text}: {error}");
}

#[test]
fn equality_is_with_the_value_or_an_element() {
    selects("{}", &["{}", r#"{"a":1}"#], &[]);
    selects(
        r#"{"a":1}"#,
        &[r#"{"a":1}"#, r#"{"a":1.0}"#, r#"{"a":{"$numberLong":"1"}}"#, r#"{"a":[2,1]}"#],
        &["{}", r#"{"a":"1"}"#, r#"{"a":true}"#, r#"{"a":[[1]]}"#, r#"{"b":1}"#],
    );
    selects(
        r#"{"a":[1,2]}"#,
        &[r#"{"a":[1,2]}"#, r#"{"a":[[1,2],3]}"#],
        &[r#"{"a":[2,1]}"#, r#"{"a":[1,2,3]}"#],
    );
    selects(
        r#"{"a":{"b":1,"c":2}}"#,
        &[r#"{"a":{"b":1,"c":2}}"#, r#"{"a":[{"b":1.0,"c":2}]}"#],
        &[r#"{"a":{"c":2,"b":1}}"#, r#"{"a":{"b":1}}"#, r#"{"a":{"b":1,"c":2,"d":3}}"#],
    );
    selects(r#"{"a":{}}"#, &[r#"{"a":{}}"#], &["{}", r#"{"a":{"b":1}}"#, r#"{"a":[]}"#]);
    selects(
        r#"{"a":{"$date":"1970-01-01T00:00:00.005Z"}}"#,
        &[r#"{"a":{"$date":{"$numberLong":"5"}}}"#, r#"{"a":{"$date":5}}"#],
        &[r#"{"a":5}"#, r#"{"a":{"$date":6}}"#],
    );
    let id = r#"{"a":{"$oid":"0123456789abcdef01234567"}}"#;
    selects(
        id,
        &[id],
        &[r#"{"a":"0123456789abcdef01234567"}"#, r#"{"a":{"$oid":"0123456789abcdef01234568"}}"#],
    );
}

#[test]
fn null_is_also_what_is_missing() {
    let missing = ["{}", r#"{"a":null}"#, r#"{"a":[1,null]}"#, r#"{"a":{"$undefined":true}}"#];
    selects(r#"{"a":null}"#, &missing, &[r#"{"a":0}"#, r#"{"a":[]}"#]);
    selects(r#"{"a":{"$in":[null,7]}}"#, &missing, &[r#"{"a":0}"#]);
    selects(r#"{"a":{"$gte":null}}"#, &missing, &[r#"{"a":0}"#]);
    selects(r#"{"a":{"$gt":null}}"#, &[], &missing);
    selects(r#"{"a":{"$ne":null}}"#, &[r#"{"a":0}"#, r#"{"a":[]}"#], &missing);
    selects(
        r#"{"a.b":null}"#,
        &["{}", r#"{"a":1}"#, r#"{"a":{}}"#, r#"{"a":[{"b":1},{}]}"#],
        &[r#"{"a":[]}"#, r#"{"a":[1,2]}"#, r#"{"a":{"b":1}}"#],
    );
}

#[test]
fn comparisons_stay_within_a_type() {
    selects(
        r#"{"a":{"$gt":1}}"#,
        &[r#"{"a":2}"#, r#"{"a":1.5}"#, r#"{"a":[0,2]}"#, r#"{"a":{"$numberDecimal":"1.1"}}"#],
        &["{}", r#"{"a":1}"#, r#"{"a":"2"}"#, r#"{"a":true}"#, r#"{"a":[[2]]}"#, r#"{"a":{"$date":2}}"#],
    );
    selects(r#"{"a":{"$gte":1,"$lt":2}}"#, &[r#"{"a":1}"#, r#"{"a":[5,-5]}"#], &[r#"{"a":2}"#]);
    selects(r#"{"a":{"$lte":"b"}}"#, &[r#"{"a":""}"#, r#"{"a":"b"}"#], &[r#"{"a":"ba"}"#, r#"{"a":null}"#]);
    selects(r#"{"a":{"$lt":[2]}}"#, &[r#"{"a":[1,9]}"#, r#"{"a":[]}"#], &[r#"{"a":[2]}"#, r#"{"a":1}"#]);
    selects(r#"{"a":{"$gt":false}}"#, &[r#"{"a":true}"#], &[r#"{"a":1}"#]);
    let nan = r#"{"a":{"$numberDouble":"NaN"}}"#;
    selects(nan, &[nan, r#"{"a":{"$numberDecimal":"NaN"}}"#], &[r#"{"a":0}"#]);
    selects(r#"{"a":{"$lt":5}}"#, &[r#"{"a":{"$numberDouble":"-Infinity"}}"#], &[nan]);
    selects(r#"{"a":{"$lte":{"$numberDouble":"NaN"}}}"#, &[nan], &[r#"{"a":0}"#]);
    selects(r#"{"a":{"$gt":{"$minKey":1}}}"#, &["{}", r#"{"a":0}"#], &[r#"{"a":{"$minKey":1}}"#]);
    // As floating-point numbers these are the same.
    selects(
        r#"{"a":9007199254740993}"#,
        &[r#"{"a":9007199254740993}"#],
        &[r#"{"a":9007199254740992}"#, r#"{"a":9007199254740992.0}"#],
    );
}

#[test]
fn paths_go_through_arrays() {
    selects(
        r#"{"a.b":1}"#,
        &[r#"{"a":{"b":1}}"#, r#"{"a":[{"b":2},{"b":1}]}"#, r#"{"a":[{"b":[0,1]}]}"#],
        &[r#"{"a.b":1}"#, r#"{"a":[[{"b":1}]]}"#, r#"{"a":{"b":{"b":1}}}"#],
    );
    selects(
        r#"{"a.1":5}"#,
        &[r#"{"a":[0,5]}"#, r#"{"a":{"1":5}}"#, r#"{"a":[{"1":5}]}"#],
        &[r#"{"a":[5,0]}"#, r#"{"a":[0,[5]]}"#, r#"{"a":5}"#],
    );
    selects(
        r#"{"a.0.b":1}"#,
        &[r#"{"a":[{"b":1}]}"#, r#"{"a":[[{"b":1}]]}"#],
        &[r#"{"a":[{"b":2},{"b":1}]}"#],
    );
    selects(r#"{"a.01":5}"#, &[r#"{"a":{"01":5}}"#], &[r#"{"a":[0,5]}"#]);
    selects(
        r#"{"a.b.c":{"$exists":true}}"#,
        &[r#"{"a":[{"b":[{"c":null}]}]}"#],
        &[r#"{"a":[{"b":[[{"c":1}]]}]}"#],
    );
}

#[test]
fn negations_negate_the_whole() {
    selects(r#"{"a":{"$ne":1}}"#, &["{}", r#"{"a":2}"#, r#"{"a":[2]}"#], &[r#"{"a":1}"#, r#"{"a":[2,1]}"#]);
    selects(r#"{"a":{"$nin":[1,null]}}"#, &[r#"{"a":2}"#, r#"{"a":[]}"#], &["{}", r#"{"a":[2,1]}"#]);
    selects(r#"{"a":{"$not":{"$gt":1}}}"#, &["{}", r#"{"a":1}"#, r#"{"a":"x"}"#], &[r#"{"a":[0,2]}"#]);
    selects(r#"{"a":{"$not":{"$gt":1,"$lt":5}}}"#, &[r#"{"a":9}"#], &[r#"{"a":[0,9]}"#, r#"{"a":2}"#]);
    selects(r#"{"a.b":{"$ne":1}}"#, &[r#"{"a":[]}"#, r#"{"a":[{"b":2}]}"#], &[r#"{"a":[{"b":2},{"b":1}]}"#]);
    selects(r#"{"$nor":[{"a":1},{"b":1}]}"#, &["{}", r#"{"a":2}"#], &[r#"{"a":1}"#, r#"{"a":2,"b":1}"#]);
}

#[test]
fn logic_combines() {
    selects(r#"{"$or":[{"a":1},{"b":1}]}"#, &[r#"{"a":1}"#, r#"{"b":1}"#], &["{}"]);
    selects(r#"{"$and":[{"a":1},{"a":2}]}"#, &[r#"{"a":[1,2]}"#], &[r#"{"a":1}"#]);
    selects(r#"{"a":1,"$or":[{"b":1},{"c":1}]}"#, &[r#"{"a":1,"c":1}"#], &[r#"{"c":1}"#, r#"{"a":1}"#]);
}

#[test]
fn in_takes_values_and_patterns() {
    selects(
        r#"{"a":{"$in":[1,"x",[3],{"$regex":"^b","$options":"i"}]}}"#,
        &[r#"{"a":1.0}"#, r#"{"a":"x"}"#, r#"{"a":[3]}"#, r#"{"a":[0,"Bob"]}"#],
        &["{}", r#"{"a":3}"#, r#"{"a":"abb"}"#],
    );
    let long = filter(r#"{"a":{"$in":[{"$regularExpression":{"pattern":"^b","options":"i"}}]}}"#);
    assert_eq!(filter(r#"{"a":{"$in":[{"$regex":"^b","$options":"i"}]}}"#).to_string(), long.to_string());
    selects(r#"{"a":{"$in":[]}}"#, &[], &["{}", r#"{"a":[]}"#]);
    selects(r#"{"a":{"$nin":[]}}"#, &["{}", r#"{"a":[]}"#], &[]);
}

#[test]
fn exists_and_type_ask_about_what_is_there() {
    selects(r#"{"a":{"$exists":true}}"#, &[r#"{"a":null}"#, r#"{"a":[]}"#], &["{}"]);
    selects(r#"{"a":{"$exists":0}}"#, &["{}"], &[r#"{"a":null}"#]);
    selects(r#"{"a":{"$type":"int"}}"#, &[r#"{"a":1}"#, r#"{"a":["x",1]}"#], &[r#"{"a":1.0}"#, "{}"]);
    selects(
        r#"{"a":{"$type":"long"}}"#,
        &[r#"{"a":{"$numberLong":"1"}}"#, r#"{"a":3000000000}"#],
        &[r#"{"a":1}"#],
    );
    selects(r#"{"a":{"$type":"number"}}"#, &[r#"{"a":1}"#, r#"{"a":1.5}"#], &[r#"{"a":"1"}"#]);
    selects(r#"{"a":{"$type":["null",9.0]}}"#, &[r#"{"a":null}"#, r#"{"a":{"$date":1}}"#], &["{}"]);
    selects(r#"{"a":{"$type":"array"}}"#, &[r#"{"a":[]}"#, r#"{"a":[[1]]}"#], &[r#"{"a":1}"#]);
}

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
    refused(r#"{"a":{"$regex":"^$","$options":"m"}}"#, "text behind ^");
    let large = format!(r#"{{"a":{{"$regex":"{}"}}}}"#, "(a{1000}){1000}");
    refused(&large, "a regular expression");
    let deep = format!(r#"{{"a":{{"$regex":"{}{}"}}}}"#, "(".repeat(10_000), ")".repeat(10_000));
    refused(&deep, "a regular expression");
}

#[test]
fn modulo_cuts_off_what_is_behind_the_point() {
    selects(
        r#"{"a":{"$mod":[4,1]}}"#,
        &[r#"{"a":5}"#, r#"{"a":5.9}"#, r#"{"a":[2,1]}"#, r#"{"a":{"$numberDecimal":"5.5"}}"#],
        &[r#"{"a":-3}"#, r#"{"a":"5"}"#, r#"{"a":{"$numberDouble":"NaN"}}"#, r#"{"a":1e300}"#, "{}"],
    );
    selects(r#"{"a":{"$mod":[-4.7,-1.2]}}"#, &[r#"{"a":-5}"#], &[r#"{"a":5}"#]);
    selects(r#"{"a":{"$mod":[-1,0]}}"#, &[r#"{"a":-9223372036854775808}"#], &[]);
    for wrong in ["[0,1]", "[0.5,1]", "[2]", "[2,1,0]", "2", r#"["2",1]"#, r#"[{"$numberDouble":"NaN"},1]"#] {
        refused(&format!(r#"{{"a":{{"$mod":{wrong}}}}}"#), "an array of a divisor");
    }
}

#[test]
fn arrays_are_asked_by_size_and_elements() {
    selects(
        r#"{"a":{"$size":1}}"#,
        &[r#"{"a":[[1,2]]}"#],
        &[r#"{"a":[]}"#, r#"{"a":1}"#, r#"{"a":[[1],[2]]}"#],
    );
    selects(
        r#"{"a.b":{"$size":2.0}}"#,
        &[r#"{"a":[{"b":[]},{"b":[1,2]}]}"#],
        &[r#"{"a":[{"b":1},{"b":2}]}"#],
    );
    selects(
        r#"{"a":{"$all":[1,[2]]}}"#,
        &[r#"{"a":[1,[2]]}"#, r#"{"a":[1,[2],3]}"#],
        &[r#"{"a":[1,2]}"#, r#"{"a":1}"#],
    );
    selects(r#"{"a":{"$all":[1]}}"#, &[r#"{"a":1}"#], &["{}"]);
    selects(r#"{"a":{"$all":[]}}"#, &[], &["{}", r#"{"a":[]}"#]);
    selects(r#"{"a":{"$all":[{"$regex":"^x"},null]}}"#, &[r#"{"a":["xy",null]}"#], &["{}", r#"{"a":"xy"}"#]);
    selects(
        r#"{"a":{"$elemMatch":{"b":1,"c":{"$gt":1}}}}"#,
        &[r#"{"a":[{"b":1,"c":2}]}"#],
        &[r#"{"a":[{"b":1,"c":1},{"b":2,"c":2}]}"#, r#"{"a":{"b":1,"c":2}}"#],
    );
    selects(
        r#"{"a":{"$elemMatch":{"$gt":1,"$lt":5}}}"#,
        &[r#"{"a":[9,2]}"#],
        &[r#"{"a":[9,0]}"#, r#"{"a":2}"#],
    );
    selects(r#"{"a":{"$elemMatch":{"0":5}}}"#, &[r#"{"a":[[5]]}"#, r#"{"a":[{"0":5}]}"#], &[r#"{"a":[5]}"#]);
    selects(
        r#"{"a":{"$elemMatch":{"$not":{"$gt":1}}}}"#,
        &[r#"{"a":[9,"x"]}"#],
        &[r#"{"a":[9]}"#, r#"{"a":[]}"#],
    );
    selects(r#"{"a":{"$elemMatch":{"$or":[{"b":1},{"c":1}]}}}"#, &[r#"{"a":[{"c":1}]}"#], &[r#"{"a":[1]}"#]);
    selects(
        r#"{"a":{"$elemMatch":{}}}"#,
        &[r#"{"a":[{}]}"#, r#"{"a":[[]]}"#],
        &[r#"{"a":[1]}"#, r#"{"a":{}}"#],
    );
    selects(
        r#"{"a":{"$all":[{"$elemMatch":{"b":1}},{"$elemMatch":{"b":2}}]}}"#,
        &[r#"{"a":[{"b":2},{"b":1}]}"#],
        &[r#"{"a":[{"b":1}]}"#],
    );
}

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

#[test]
fn moving_dates_stand_where_dates_are_compared() {
    let date = |millis: i64| format!(r#"{{"a":{{"$date":{millis}}}}}"#);
    for (offset, millis) in [
        ("0s", 0),
        ("-250ms", -250),
        ("+2s", 2_000),
        ("1m", 60_000),
        ("-1h", -3_600_000),
        ("1d12h", 129_600_000),
    ] {
        let text = format!(r#"{{"a":{{"$eq":{{"$now":"{offset}"}}}}}}"#);
        selects(&text, &[&date(1_000 + millis)], &[&date(1_001 + millis), r#"{"a":1000}"#, "{}"]);
    }
    for wrong in ["", "-", "1", "s", "1w", "1 h", "--1h", "1h-2m", "4000000d", "99999999999999999999d", "1é"]
    {
        refused(&format!(r#"{{"a":{{"$gt":{{"$now":"{wrong}"}}}}}}"#), "an offset such as -1h");
    }
    refused(r#"{"a":{"$gt":{"$now":5}}}"#, "an offset such as -1h");
    refused(r#"{"a":{"$gt":{"$now":"1s","b":1}}}"#, "an offset such as -1h");
    refused(r#"{"a":{"$now":"1s"}}"#, "a comparison around it");
    refused(r#"{"a":{"$in":[{"$now":"1s"}]}}"#, "does not begin with $");
}

#[test]
fn a_query_has_dates_that_stand_still() {
    let timed =
        filter(r#"{"$or":[{"a":{"$lt":{"$now":"-1s"}}},{"b":{"$elemMatch":{"$gte":{"$now":"0s"}}}}]}"#);
    assert!(timed.is_timed());
    assert_eq!(
        timed.to_query(at(1_500)).to_string(),
        r#"{"$or":[{"a":{"$lt":{"$date":{"$numberLong":"500"}}}},{"b":{"$elemMatch":{"$gte":{"$date":{"$numberLong":"1500"}}}}}]}"#
    );
    let plain = filter(r#"{"b":1,"a":{"z":1,"y":{"$numberLong":"5"}}}"#);
    assert!(!plain.is_timed());
    assert_eq!(plain.to_query(at(0)).to_string(), plain.to_string());
    assert_eq!(plain.changes_at(&Value::Null, at(0)), None);
}

#[test]
fn what_can_not_change_any_more_is_not_looked_at_again() {
    let document: Value = r#"{"open":false,"at":{"$date":5000}}"#.parse().unwrap();
    let next = |text: &str, now| filter(text).changes_at(&document, at(now)).map(Timestamp::as_millisecond);
    assert_eq!(next(r#"{"at":{"$lt":{"$now":"0s"}}}"#, 0), Some(5_001));
    assert_eq!(next(r#"{"at":{"$lt":{"$now":"-1s"}}}"#, 0), Some(6_001));
    assert_eq!(next(r#"{"at":{"$gt":{"$now":"1s"}}}"#, 0), Some(4_000));
    assert_eq!(next(r#"{"at":{"$eq":{"$now":"0s"}}}"#, 5_000), Some(5_001));
    assert_eq!(next(r#"{"at":{"$lte":{"$now":"0s"}}}"#, 5_000), None);
    assert_eq!(next(r#"{"open":true,"at":{"$lt":{"$now":"0s"}}}"#, 0), None);
    assert_eq!(next(r#"{"$or":[{"open":false},{"at":{"$lt":{"$now":"0s"}}}]}"#, 0), None);
    assert_eq!(next(r#"{"open":{"$lt":{"$now":"0s"}}}"#, 0), None);
    let latest: Value = format!(r#"{{"at":{{"$date":{}}}}}"#, i64::MAX).parse().unwrap();
    assert_eq!(filter(r#"{"at":{"$lt":{"$now":"-1s"}}}"#).changes_at(&latest, at(0)), None);
    // Fractions of a millisecond don't count, and the next change is later than `now`.
    let within = Timestamp::from_nanosecond(4_999_999_999).unwrap();
    let timed = filter(r#"{"at":{"$lte":{"$now":"0s"}}}"#);
    assert!(!timed.matches(&document, within));
    assert_eq!(timed.changes_at(&document, within), Some(at(5_000)));
}

fn any_date() -> impl Strategy<Value = serde_json::Value> {
    (0..20_i64).prop_map(|millis| json!({ "$date": millis }))
}

fn timed_condition() -> impl Strategy<Value = serde_json::Value> {
    let operator = prop::sample::select(vec!["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]);
    let operand = prop_oneof![
        4 => (-5..6_i64).prop_map(|millis| json!({ "$now": format!("{millis}ms") })),
        1 => any_date(),
        1 => Just(json!(null)),
    ];
    let compare = prop::collection::btree_map(operator, operand, 1..3).prop_map(|operators| json!(operators));
    compare.prop_recursive(2, 4, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|condition| json!({ "$not": condition })),
            inner.clone().prop_map(|condition| json!({ "$elemMatch": condition })),
            inner.clone().prop_map(|condition| json!({ "$elemMatch": { "b": condition } })),
            inner.prop_map(|condition| json!({ "$all": [{ "$elemMatch": condition }] })),
        ]
    })
}

fn timed_filter() -> impl Strategy<Value = serde_json::Value> {
    let path = prop::sample::select(vec!["a", "b", "a.b", "a.0", "c"]);
    let field = prop_oneof![
        4 => (path.clone(), timed_condition()).prop_map(|(path, condition)| json!({ path: condition })),
        1 => path.prop_map(|path| json!({ path: { "$exists": true } })),
    ];
    field.prop_recursive(2, 6, 3, |inner| {
        let operator = prop::sample::select(vec!["$and", "$or", "$nor"]);
        (operator, prop::collection::vec(inner, 1..4))
            .prop_map(|(operator, parts)| json!({ operator: parts }))
    })
}

fn dated_document() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![4 => any_date(), 1 => Just(json!(null)), 1 => Just(json!(3))];
    let value = leaf.prop_recursive(3, 10, 3, |inner| {
        let names = prop::sample::select(vec!["a", "b", "0"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(|items| json!(items)),
            prop::collection::btree_map(names, inner, 0..3).prop_map(|fields| json!(fields)),
        ]
    });
    let names = prop::sample::select(vec!["a", "b", "c"]);
    prop::collection::btree_map(names, value, 0..4).prop_map(|fields| json!(fields))
}

/// Generates values that look a little like filters.
fn any_filter() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<i64>().prop_map(|number| json!(number)),
        any::<f64>().prop_map(|number| json!(number)),
        "[a-c^$.*+()\\[\\]{}|?\\\\0-9é-]{0,6}".prop_map(|text| json!(text)),
        Just(json!("-1h")),
    ];
    leaf.prop_recursive(5, 30, 4, |inner| {
        let names = prop::sample::select(vec![
            "a",
            "a.0",
            "b.c",
            "$and",
            "$or",
            "$nor",
            "$not",
            "$eq",
            "$ne",
            "$gt",
            "$lte",
            "$in",
            "$nin",
            "$all",
            "$elemMatch",
            "$size",
            "$mod",
            "$type",
            "$exists",
            "$regex",
            "$options",
            "$now",
            "$date",
            "$oid",
            "$numberDecimal",
            "$regularExpression",
            "pattern",
            "options",
            "$minKey",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| json!(items)),
            prop::collection::btree_map(names, inner, 0..3).prop_map(|fields| json!(fields)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_change_is_missed_by_looking_only_when_told(json in timed_filter(), document in dated_document()) {
        let (filter, document) = (Filter::parse(&json).unwrap(), Value::from(document));
        let (mut now, mut answer) = (-10, filter.matches(&document, at(-10)));
        while now < 40 {
            let next = filter.changes_at(&document, at(now)).map_or(40, Timestamp::as_millisecond);
            prop_assert!(next > now, "{filter} on {document} at {now}");
            for millis in now..next.min(40) {
                prop_assert_eq!(filter.matches(&document, at(millis)), answer, "{} on {} at {}", filter, document, millis);
            }
            now = next;
            answer = filter.matches(&document, at(now));
        }
    }

    #[test]
    fn a_query_means_the_same_at_its_moment(json in timed_filter(), document in dated_document(), now in -10..30_i64) {
        let (filter, document) = (Filter::parse(&json).unwrap(), Value::from(document));
        let fixed = Filter::of(filter.to_query(at(now))).unwrap();
        prop_assert!(!fixed.is_timed());
        prop_assert_eq!(fixed.matches(&document, at(77)), filter.matches(&document, at(now)));
    }

    #[test]
    fn whatever_comes_is_parsed_or_refused(json in any_filter(), document in any_filter()) {
        if let Ok(filter) = Filter::parse(&json) {
            let again: Filter = filter.to_string().parse().unwrap();
            prop_assert_eq!(again.to_string(), filter.to_string());
            let document = Value::from(document);
            prop_assert_eq!(again.matches(&document, at(5)), filter.matches(&document, at(5)));
            filter.changes_at(&document, at(5));
        }
    }
}
