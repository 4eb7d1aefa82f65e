//! Ids of documents that any program writes: an `_id` has nearly any type, a [`DocumentId`] is a
//! text.
//!
//! | `_id` | the text |
//! | --- | --- |
//! | a string | the string itself |
//! | anything else | its canonical extended JSON, such as `{"$oid":"…"}`, `{"$numberInt":"5"}`, `{"country":"at","number":{"$numberInt":"7"}}`, `true` |
//! | a string that could be taken for one of those | the string as JSON, in quotes |
//!
//! The last row is for strings that begin with `{` or `"`, that are `true`, `false`, `null` or
//! empty, or that have control characters. So each value has one text, and each such text one
//! value. The order of a sub-document's fields counts, as it does for MongoDB. A text can exceed
//! the length limit of ids that users enter.

use bson::Bson;
use bson::raw::RawBsonRef;
use leftfold::DocumentId;

use super::notation::{self, Style};
use crate::error::Failure;

/// Returns the id for an `_id`.
pub(crate) fn of(value: RawBsonRef<'_>) -> Result<DocumentId, Failure> {
    match value {
        RawBsonRef::String(text) if !is_special(text) && !text.contains(char::is_control) => {
            Ok(DocumentId::stored(text))
        }
        value => {
            let mut text = notation::text(value, Style::Canonical)?;
            // JSON does not escape all control characters, but a name must have none.
            while let Some(control) = text.chars().find(|c| c.is_control()) {
                text = text.replace(control, &format!("\\u{:04x}", u32::from(control)));
            }
            Ok(DocumentId::stored(&text))
        }
    }
}

/// Returns the `_id` for an id. `None` if no document can have it.
pub(crate) fn value(id: &DocumentId) -> Option<Bson> {
    let text = id.as_str();
    if is_special(text) { notation::value(text) } else { Some(Bson::String(text.to_owned())) }
}

/// Returns whether a text stands for another value than itself.
fn is_special(text: &str) -> bool {
    text.starts_with(['{', '"']) || matches!(text, "" | "true" | "false" | "null")
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{DateTime, RawDocumentBuf, doc};
    use proptest::prelude::*;

    use super::*;

    fn id(value: &Bson) -> DocumentId {
        let document = RawDocumentBuf::try_from(&doc! { "v": value.clone() }).unwrap();
        of(document.get("v").unwrap().unwrap()).unwrap()
    }

    #[test]
    fn every_type_has_its_text() {
        let oid = ObjectId::parse_str("0123456789abcdef01234567").unwrap();
        let cases: Vec<(Bson, &str)> = vec![
            ("cart-42".into(), "cart-42"),
            ("5".into(), "5"),
            (oid.into(), r#"{"$oid":"0123456789abcdef01234567"}"#),
            (5.into(), r#"{"$numberInt":"5"}"#),
            (5_i64.into(), r#"{"$numberLong":"5"}"#),
            (5.5.into(), r#"{"$numberDouble":"5.5"}"#),
            (5e-310.into(), r#"{"$numberDouble":"5e-310"}"#),
            ((-0.0).into(), r#"{"$numberDouble":"-0.0"}"#),
            (f64::INFINITY.into(), r#"{"$numberDouble":"Infinity"}"#),
            (true.into(), "true"),
            ("true".into(), r#""true""#),
            (Bson::Null, "null"),
            ("".into(), r#""""#),
            (DateTime::from_millis(7).into(), r#"{"$date":{"$numberLong":"7"}}"#),
            (
                doc! { "z": 1, "a": { "y": "x", "b": oid } }.into(),
                r#"{"z":{"$numberInt":"1"},"a":{"y":"x","b":{"$oid":"0123456789abcdef01234567"}}}"#,
            ),
            (r#"{"$oid":"0123456789abcdef01234567"}"#.into(), r#""{\"$oid\":\"0123456789abcdef01234567\"}""#),
            (r#""quoted""#.into(), r#""\"quoted\"""#),
            ("a\0\u{85}".into(), r#""a\u0000\u0085""#),
        ];
        for (value, text) in cases {
            let id = id(&value);
            assert_eq!(id.as_str(), text);
            assert!(DocumentId::new(id.as_str()).is_ok(), "{text}");
            assert_eq!(super::value(&id), Some(value));
        }
    }

    #[test]
    fn what_stands_for_nothing_is_nothing() {
        for text in ["{", "{abc}", "\"", "\"a\" \"b\"", r#"{"a":1} {}"#] {
            assert_eq!(value(&DocumentId::stored(text)), None, "{text}");
        }
    }

    fn any_id() -> impl Strategy<Value = Bson> {
        let leaf = prop_oneof![
            ".*".prop_map(Bson::String),
            "[{\"$a]{0,4}".prop_map(Bson::String),
            any::<i32>().prop_map(Bson::Int32),
            any::<i64>().prop_map(Bson::Int64),
            prop::num::f64::ANY.prop_filter("equal to itself", |n| !n.is_nan()).prop_map(Bson::Double),
            any::<bool>().prop_map(Bson::Boolean),
            any::<i64>().prop_map(|millis| DateTime::from_millis(millis).into()),
            any::<[u8; 12]>().prop_map(|bytes| ObjectId::from_bytes(bytes).into()),
            any::<[u8; 16]>().prop_map(|bytes| bson::Uuid::from_bytes(bytes).into()),
            Just(Bson::Null),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop::collection::vec(("[a-z]{1,3}", inner), 0..4)
                .prop_map(|fields| Bson::Document(fields.into_iter().collect()))
        })
    }

    proptest! {
        #[test]
        fn each_comes_back_and_none_is_taken_for_another(one in any_id(), other in any_id()) {
            let (first, second) = (id(&one), id(&other));
            prop_assert_eq!(value(&first), Some(one.clone()));
            prop_assert!(!first.as_str().contains(char::is_control));
            prop_assert_eq!(first == second, one == other);
        }
    }
}
