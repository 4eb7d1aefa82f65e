use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

use super::{Counted, Version, canonical, plain, sorted};
use crate::json::Json;
use crate::react::Value;

fn text(document: &str) -> String {
    canonical(&Json::parse(document).unwrap(), &Counted::All).unwrap()
}

fn version(document: &str) -> String {
    Version::of(&Json::parse(document).unwrap(), &Counted::All).unwrap().to_string()
}

/// The format is stable, because others store versions in their files.
#[test]
fn versions_stay_what_they_are() {
    for (document, expected) in [
        ("{}", "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"),
        ("null", "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"),
        (
            r#"{"b":[1,2.50],"a":"\u20ac"}"#,
            "bc4add5c41fa4b4821b7b588d68cb02babc319039b43ef408c0f063f03baf210",
        ),
    ] {
        assert_eq!(version(document), expected, "{}", text(document));
    }
}

/// Examples from RFC 8785, and some beyond it.
#[test]
fn a_value_has_one_text() {
    for (document, expected) in [
        (
            r#"{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}"#,
            r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#,
        ),
        (
            r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#,
            "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}",
        ),
        (
            "[0.0,-0.0,-0,5.0,1e2,100,1e20,1e21,1e-6,1e-7,123e-20,-1.5]",
            "[0,0,0,5,100,100,100000000000000000000,1e+21,0.000001,1e-7,1.23e-18,-1.5]",
        ),
        (
            "[9007199254740993,1152921504606846976.0,-9223372036854775808]",
            "[9007199254740993,1152921504606846976,-9223372036854775808]",
        ),
        (
            r#"[{"$numberInt":"5"},{"$numberLong":"5"},{"$numberDouble":"5.0"},{"$numberDecimal":"5.00"},{"$numberDecimal":"50E-1"}]"#,
            "[5,5,5,5,5]",
        ),
        (
            r#"[{"$numberDecimal":"1.50"},{"$numberDecimal":"-0.0"},{"$numberDecimal":"1E+30"}]"#,
            r#"[{"$numberDecimal":"15E-1"},0,{"$numberDecimal":"1E+30"}]"#,
        ),
        (
            r#"[{"$date":"1970-01-01T00:00:01Z"},{"$date":{"$numberLong":"1000"}}]"#,
            r#"[{"$date":{"$numberLong":"1000"}},{"$date":{"$numberLong":"1000"}}]"#,
        ),
        (
            r#"[{"$oid":"0123456789ABCDEF01234567"},{"$uuid":"00010203-0405-0607-0809-0a0b0c0d0e0f"}]"#,
            r#"[{"$oid":"0123456789abcdef01234567"},{"$binary":{"base64":"AAECAwQFBgcICQoLDA0ODw==","subType":"04"}}]"#,
        ),
        (
            r#"[{"$timestamp":{"t":1,"i":2}},{"$regularExpression":{"pattern":"a","options":"xi"}}]"#,
            r#"[{"$timestamp":{"i":2,"t":1}},{"$regularExpression":{"options":"ix","pattern":"a"}}]"#,
        ),
        (
            r#"[{"$minKey":1},{"$maxKey":1},{"$symbol":"s"},{"$code":"c"},{"$undefined":true}]"#,
            r#"[{"$minKey":1},{"$maxKey":1},{"$symbol":"s"},{"$code":"c"},{"$undefined":true}]"#,
        ),
    ] {
        assert_eq!(text(document), expected);
    }
}

#[test]
fn what_is_not_plain_is_left_to_the_thorough_way() {
    for plain in [
        r#"{"name":"Product 7","description":"Good, and light","price":4900,"stock":1000,"tags":["shoes","new"]}"#,
        r#"{"b":[1,{"d":"é","c":-7}], "a":null}"#,
        "[]",
        "{}",
        "0",
        r#""text""#,
    ] {
        let value: Value = plain.parse().unwrap();
        assert_eq!(plain::text(plain), super::text(&value).ok(), "{plain}");
    }
    for quick in [
        r#"{"name":"Product 7","price":4900,"stock":-1000,"tags":["shoes",{"a":0,"b":"é"}],"ok":true,"no":null}"#,
        "{}",
        r#"{"a":{},"b":[]}"#,
    ] {
        let text = super::text(&quick.parse().unwrap()).unwrap();
        assert_eq!(sorted::digest(quick).unwrap(), *Sha256::digest(text), "{quick}");
    }
    for special in [
        r#"{"$date":"1970-01-01T00:00:01Z"}"#,
        r#"{"a":1,"a":2}"#,
        r#"{"é":1,"a":2}"#,
        r#"{"a":"\u0041"}"#,
        "[1.0]",
        "[-0]",
        "[1e3]",
        "[1234567890123456789]",
        &format!("{}{}", "[".repeat(40), "]".repeat(40)),
        "[1,]",
        "{\"a\"}",
        "[1] 2",
    ] {
        assert_eq!(plain::text(special), None, "{special}");
        assert_eq!(sorted::digest(special), None, "{special}");
    }
}

#[test]
fn what_has_no_version_says_where() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(canonical(&Json::parse(&deep(100)).unwrap(), &Counted::All).is_ok());
    for (document, place) in [
        (r#"{"a":[1,{"b":{"$numberDouble":"NaN"}}]}"#, "NaN at a.1.b"),
        (r#"{"a":{"$numberDecimal":"Infinity"}}"#, "Infinity at a"),
        (r#"{"a":{"b":1,"c":2,"b":1}}"#, "the duplicate field b at a"),
        (r#"{"b":1,"\u0062":1}"#, "the duplicate field b"),
        (&deep(101), "level 101 at 0.0.0"),
    ] {
        let error = canonical(&Json::parse(document).unwrap(), &Counted::All).unwrap_err().to_string();
        assert!(error.contains(place), "{error}");
    }
}

#[test]
fn versions_are_read_as_they_are_written() {
    let version = Version::of(&Json::parse("{}").unwrap(), &Counted::All).unwrap();
    assert_eq!(version.to_string().parse::<Version>().unwrap(), version);
    assert_eq!(serde_json::from_str::<Version>(&serde_json::to_string(&version).unwrap()).unwrap(), version);
    for wrong in [
        "",
        "5",
        &version.to_string()[1..],
        &version.to_string().to_uppercase(),
        &"é".repeat(32),
        &"+1".repeat(32),
    ] {
        assert!(
            wrong.parse::<Version>().unwrap_err().to_string().contains("64 hexadecimal digits"),
            "{wrong}"
        );
    }
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(Into::into),
        ".*".prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 20, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
            prop::collection::btree_map(".{0,3}", inner, 0..5)
                .prop_map(|fields| fields.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

proptest! {
    /// The fast path returns the same text as the slow path.
    #[test]
    fn both_ways_lead_to_the_same_text(document in any_json(), spaces in "[ \\n]{0,2}") {
        let spaced = document.to_string().replace(',', &format!(",{spaces}")).replace(':', &format!("{spaces}:"));
        for written in [document.to_string(), spaced, format!("{document:#}")] {
            if let (Some(plain), Ok(value)) = (plain::text(&written), written.parse::<Value>()) {
                prop_assert_eq!(Ok(plain), super::text(&value));
            }
            if let (Some(hash), Ok(value)) = (sorted::digest(&written), written.parse::<Value>()) {
                let text = super::text(&value).unwrap();
                let expected: [u8; 32] = Sha256::digest(text).into();
                prop_assert_eq!(hash, expected);
            }
        }
    }

    /// The text means the same as the document, is its own canonical text, and does not depend on
    /// the order of fields.
    #[test]
    fn a_text_is_its_own(document in any_json()) {
        let written = document.to_string();
        let canonical = text(&written);
        prop_assert_eq!(&text(&canonical), &canonical);
        let (one, other): (Value, Value) = (written.parse().unwrap(), canonical.parse().unwrap());
        prop_assert_eq!(in_order(one), in_order(other));
    }
}

fn in_order(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> =
                fields.into_iter().map(|(name, value)| (name, in_order(value))).collect();
            fields.sort_by(|one, other| one.0.cmp(&other.0));
            Value::Object(fields)
        }
        Value::Array(items) => Value::Array(items.into_iter().map(in_order).collect()),
        other => other,
    }
}
