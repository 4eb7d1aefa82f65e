//! The documents that each operator selects.

use super::{filter, refused, selects};

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
