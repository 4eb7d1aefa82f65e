//! Bodies: from JSON text to the fields of a BSON document, and back.
//!
//! A body's fields are stored at the top level, with BSON's own types, so that they can be queried
//! like any document. JSON allows more than BSON: numbers of any length, fields named `_id`,
//! unlimited nesting. The encoder drops or rounds values that BSON can't hold, and then also stores
//! the exact text: **a body always comes back as it went in.**

use bson::RawDocument;
use leftfold::Json;

use super::elements::Writer;
use super::notation::{Style, write, write_object};
use crate::error::Failure;

/// The field that holds a body that is not an object.
pub(crate) const BARE: &str = "value";

/// A body in BSON.
pub(crate) struct Encoded {
    /// The elements of a BSON document, concatenated.
    pub(crate) elements: Vec<u8>,
    /// `true` if the body is not an object: its only element is then [`BARE`].
    pub(crate) bare: bool,
    /// `true` if the elements alone reproduce the text.
    pub(crate) exact: bool,
}

/// Encodes a body as BSON elements. `ours` is the field reserved for Leftfold beside it.
pub(crate) fn encode(body: &Json, ours: &str) -> Result<Encoded, Failure> {
    let text = body.as_str();
    let mut writer = Writer::new(text, Vec::with_capacity(text.len() + text.len() / 2));
    writer.space();
    let bare = writer.peek() != Some(b'{') || writer.is_extended();
    let done = if bare { writer.element(BARE.as_bytes(), 1) } else { writer.top(ours) };
    writer.space();
    match done {
        Some(()) if writer.at == text.len() => {
            Ok(Encoded { elements: writer.out, bare, exact: writer.exact })
        }
        _ => Err(Failure::damaged(format!("a body is not JSON at byte {}", writer.at))),
    }
}

/// Reconstructs the text of a body that is stored as BSON only. `ours` is the field reserved for
/// Leftfold beside it.
pub(crate) fn decode(document: &RawDocument, ours: &str, bare: bool) -> Result<Json, Failure> {
    let mut out = String::with_capacity(document.as_bytes().len());
    if bare {
        let value = document.get(BARE)?.ok_or_else(|| Failure::damaged("a bare body has no value"))?;
        write(&mut out, value, Style::Stored)?;
        return Ok(Json::stored(out));
    }
    write_object(&mut out, document, Style::Stored, |key| key != "_id" && key != ours)?;
    Ok(Json::stored(out))
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, Document, RawDocumentBuf, doc};
    use proptest::prelude::*;

    use super::*;

    fn document(body: &Encoded) -> Document {
        let mut bytes = vec![0; 4];
        bytes.extend_from_slice(&body.elements);
        bytes.push(0);
        let length = i32::try_from(bytes.len()).unwrap();
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        Document::from_reader(bytes.as_slice()).unwrap()
    }

    fn encoded(text: &str) -> (Document, bool) {
        let body = encode(&Json::parse(text).unwrap(), "_fold").unwrap();
        (document(&body), body.exact)
    }

    #[test]
    fn bodies_get_the_types_of_bson() {
        let cases = [
            (
                r#"{"a":1,"b":-3000000000,"c":1.5,"d":"x\ny","e":[true,null],"f":{}}"#,
                doc! { "a": 1, "b": -3_000_000_000_i64, "c": 1.5, "d": "x\ny", "e": [true, null], "f": {} },
            ),
            ("{}", doc! {}),
            ("[]", doc! { "value": [] }),
            ("5", doc! { "value": 5 }),
            (
                r#"{"at":{"$date":{"$numberLong":"1700000000123"}},"by":{"$oid":"0123456789abcdef01234567"}}"#,
                doc! { "at": DateTime::from_millis(1_700_000_000_123),
                "by": bson::oid::ObjectId::parse_str("0123456789abcdef01234567").unwrap() },
            ),
            (r#"{"a":{"$weird":1,"b.c":2}}"#, doc! { "a": { "$weird": 1, "b.c": 2 } }),
        ];
        for (text, expected) in cases {
            assert_eq!(encoded(text), (expected, true), "{text}");
        }
    }

    #[test]
    fn what_bson_can_not_hold_is_left_out_and_known() {
        let deep = format!("{{\"d\":{}1{}}}", "[".repeat(200), "]".repeat(200));
        let cases = [
            (r#"{"a":18446744073709551615}"#, doc! { "a": 18_446_744_073_709_551_615.0 }),
            (r#"{"_id":1,"_fold":2,"$set":3,"a":4}"#, doc! { "a": 4 }),
            (r#"{ "a":4}"#, doc! { "a": 4 }),
            (r#"{"a":1.50}"#, doc! { "a": 1.5 }),
            (r#"{"a":-0}"#, doc! { "a": -0.0 }),
            (r#"{"a\u0000b":1,"\/":2}"#, doc! { "/": 2 }),
            (r#"{"a":"\ud800"}"#, doc! { "a": "" }),
            (
                r#"{"at":{"$date":"2023-11-14T22:13:20.123Z"}}"#,
                doc! { "at": DateTime::from_millis(1_700_000_000_123) },
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(encoded(text), (expected, false), "{text}");
        }
        let (document, exact) = encoded(&deep);
        assert!(!exact && document.to_string().matches('[').count() < 100);
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<u64>().prop_map(Into::into),
            any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(Into::into),
            ".*".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            let key = prop_oneof!["[a-z_$.]{0,4}", ".*", Just("_id".to_owned()), Just("$date".to_owned())];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                prop::collection::btree_map(key, inner, 0..6)
                    .prop_map(|fields| serde_json::Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_said_to_be_exact_comes_back_to_the_letter(value in any_json()) {
            let json = Json::of(&value).unwrap();
            let body = encode(&json, "_fold").unwrap();
            let stored = RawDocumentBuf::try_from(&document(&body)).unwrap();
            if body.exact {
                prop_assert_eq!(decode(&stored, "_fold", body.bare).unwrap(), json);
            }
        }
    }
}
