//! The order of values, and their JSON.

use proptest::prelude::*;

use crate::{Decimal, Value};

fn value(text: &str) -> Value {
    text.parse().unwrap()
}

#[test]
fn types_come_in_their_order() {
    let ascending = [
        r#"{"$minKey":1}"#,
        r#"{"$undefined":true}"#,
        "null",
        r#"{"$numberDouble":"NaN"}"#,
        r#"{"$numberDouble":"-Infinity"}"#,
        r#"{"$numberDecimal":"-1E+400"}"#,
        "-9223372036854775808",
        "-1.5",
        "0",
        r#"{"$numberDecimal":"0.1"}"#,
        "0.1",
        r#"{"$numberDecimal":"0.1000000000000000055511151231257828"}"#,
        "9007199254740992.0",
        "9007199254740993",
        r#"{"$numberDecimal":"9007199254740993.5"}"#,
        "9223372036854775807",
        "9223372036854775808.0",
        "1e300",
        r#"{"$numberDecimal":"Infinity"}"#,
        r#""""#,
        r#""A""#,
        r#""a""#,
        r#"{"$symbol":"ab"}"#,
        r#""é""#,
        "{}",
        r#"{"b":1}"#,
        r#"{"b":1,"a":0}"#,
        r#"{"b":2}"#,
        r#"{"a":"x"}"#,
        "[]",
        "[1]",
        "[1,0]",
        "[2]",
        r#"{"$binary":{"base64":"","subType":"05"}}"#,
        r#"{"$binary":{"base64":"/w==","subType":"00"}}"#,
        r#"{"$binary":{"base64":"AA==","subType":"01"}}"#,
        r#"{"$oid":"0123456789abcdef01234567"}"#,
        r#"{"$oid":"0123456789abcdef01234568"}"#,
        "false",
        "true",
        r#"{"$date":-1}"#,
        r#"{"$date":"1970-01-01T00:00:00Z"}"#,
        r#"{"$date":{"$numberLong":"1"}}"#,
        r#"{"$timestamp":{"t":1,"i":2}}"#,
        r#"{"$timestamp":{"t":4294967295,"i":0}}"#,
        r#"{"$regularExpression":{"pattern":"a","options":""}}"#,
        r#"{"$regularExpression":{"pattern":"a","options":"i"}}"#,
        r#"{"$dbPointer":{"$ref":"b","$id":{"$oid":"0123456789abcdef01234567"}}}"#,
        r#"{"$dbPointer":{"$ref":"aa","$id":{"$oid":"0123456789abcdef01234567"}}}"#,
        r#"{"$code":"f()"}"#,
        r#"{"$code":"f()","$scope":{}}"#,
        r#"{"$code":"f()","$scope":{"a":1}}"#,
        r#"{"$maxKey":1}"#,
    ];
    for (index, one) in ascending.iter().enumerate() {
        for (other_index, other) in ascending.iter().enumerate() {
            assert_eq!(value(one).cmp(&value(other)), index.cmp(&other_index), "{one} and {other}");
        }
        assert_eq!(value(&value(one).to_string()), value(one), "{one}");
    }
}

#[test]
fn numbers_are_what_they_are_worth() {
    let ones = [
        Value::Int32(1),
        Value::Int64(1),
        Value::Double(1.0),
        Value::Decimal("1".parse().unwrap()),
        Value::Decimal("1.000".parse().unwrap()),
        Value::Decimal("+10E-1".parse().unwrap()),
    ];
    for one in &ones {
        for other in &ones {
            assert_eq!(one, other);
        }
    }
    assert_eq!(Value::Double(-0.0), Value::Int32(0));
    assert_eq!(value(r#"{"$numberDecimal":"-0E+9"}"#), Value::Int32(0));
    assert_eq!(Value::Double(f64::INFINITY), value(r#"{"$numberDecimal":"Infinity"}"#));
    assert_eq!(Value::Double(f64::NAN), value(r#"{"$numberDecimal":"NaN"}"#));
    for (number, whole) in [
        ("1.9", Some(1)),
        ("-1.9", Some(-1)),
        ("12E+2", Some(1_200)),
        ("1E-99", Some(0)),
        ("1E+19", None),
        ("NaN", None),
    ] {
        assert_eq!(Value::Decimal(number.parse().unwrap()).truncated(), whole, "{number}");
    }
    for wrong in ["", "-", ".", "1e", "1.2.3", "1E+9999", "12345678901234567890123456789012345", "x"] {
        assert!(wrong.parse::<Decimal>().is_err(), "{wrong}");
    }
}

#[test]
fn json_says_which_type_it_is() {
    for (text, code) in [
        ("1", 16),
        ("2147483648", 18),
        ("18446744073709551615", 1),
        ("1.0", 1),
        (r#"{"$numberLong":"1"}"#, 18),
        (r#"{"$numberInt":"1"}"#, 16),
        (r#"{"$numberDouble":"1"}"#, 1),
        (r#"{"$uuid":"00112233-4455-6677-8899-aabbccddeeff"}"#, 5),
        (r#"{"$date":"2026-11-16T08:00:00+01:00"}"#, 9),
        // These only look like extended JSON.
        (r#"{"$date":"soon"}"#, 3),
        (r#"{"$date":5,"a":1}"#, 3),
        (r#"{"$oid":"+123456789abcdef01234567"}"#, 3),
        (r#"{"$oid":"0123"}"#, 3),
        (r#"{"$numberInt":"2147483648"}"#, 3),
        (r#"{"$minKey":2}"#, 3),
    ] {
        assert_eq!(value(text).type_code(), code, "{text}");
        assert_eq!(Value::from(serde_json::from_str::<serde_json::Value>(text).unwrap()).type_code(), code);
        assert_eq!(value(&value(text).to_string()).type_code(), code, "{text}");
    }
    assert_eq!(value(r#"{"z":1,"a":{"y":2,"b":3}}"#).to_string(), r#"{"z":1,"a":{"y":2,"b":3}}"#);
}

fn any_number() -> impl Strategy<Value = Value> {
    let special =
        [0.0, 0.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 9_007_199_254_740_992.0, 9.3e18, 5e-324];
    prop_oneof![
        (-3..4_i32).prop_map(Value::Int32),
        any::<i64>().prop_map(Value::Int64),
        (-2..3_i64).prop_map(|more| Value::Int64((1 << 53) + more)),
        prop::sample::select(special.to_vec()).prop_map(Value::Double),
        any::<f64>().prop_map(Value::Double),
        (any::<i64>(), -3..4_i32)
            .prop_map(|(digits, exponent)| Value::Decimal(format!("{digits}E{exponent}").parse().unwrap())),
        (-3..4_i32).prop_map(|whole| Value::Decimal(format!("{whole}.50").parse().unwrap())),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn numbers_have_one_order(one in any_number(), other in any_number(), third in any_number()) {
        prop_assert_eq!(one.cmp(&other), other.cmp(&one).reverse());
        let mut sorted = [one, other, third];
        sorted.sort();
        prop_assert!(sorted[0] <= sorted[1] && sorted[1] <= sorted[2] && sorted[0] <= sorted[2]);
        prop_assert!((sorted[0] == sorted[2]) <= (sorted[0] == sorted[1] && sorted[1] == sorted[2]));
    }
}
