//! Bodies: from JSON text to the fields of a BSON document, and back.
//!
//! A body's fields are stored at the top level, with BSON's own types, so that they can be queried
//! like any document. JSON allows more than BSON: numbers of any length, fields named `_id`,
//! unlimited nesting. The encoder drops or rounds values that BSON can't hold, and then also stores
//! the exact text: **a body always comes back as it went in.**
//!
//! An extended JSON object, `{"$date": …}` or `{"$oid": …}`, becomes the BSON type it names. The
//! driver's own types, for example `bson::DateTime`, are serialized this way.

use std::fmt::Write as _;

use bson::raw::RawBsonRef;
use bson::spec::ElementType;
use bson::{Bson, RawDocument, RawDocumentBuf};
use leftfold::Json;

use crate::error::Failure;

/// The deepest nesting that is encoded: servers refuse documents that are only slightly deeper.
const MAX_DEPTH: usize = 90;

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
    let mut writer =
        Writer { text, at: 0, out: Vec::with_capacity(text.len() + text.len() / 2), exact: true };
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

/// The notation of values that JSON has no type for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// The notation of projection bodies: plain JSON numbers; every other value keeps its type.
    Stored,
    /// Relaxed extended JSON, which is easy to read.
    Relaxed,
    /// Canonical extended JSON, which keeps every type, also of numbers.
    Canonical,
}

/// Returns a value as JSON text, with its fields in order.
pub(crate) fn text(value: RawBsonRef<'_>, style: Style) -> Result<String, Failure> {
    let mut out = String::new();
    write(&mut out, value, style)?;
    Ok(out)
}

/// Parses extended JSON, with its fields in order. Returns `None` if the text is not valid.
pub(crate) fn value(text: &str) -> Option<Bson> {
    serde_json::from_str::<&serde_json::value::RawValue>(text).ok()?;
    let mut writer = Writer { text, at: 0, out: vec![0; 4], exact: true };
    writer.space();
    writer.element(b"v", 1)?;
    let mut bytes = writer.out;
    bytes.push(0);
    let length = i32::try_from(bytes.len()).ok()?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    let document = RawDocumentBuf::from_bytes(bytes).ok()?;
    Bson::try_from(document.get("v").ok()??).ok()
}

/// Walks along a valid JSON text and writes BSON. Its methods return `None` if the text is invalid.
struct Writer<'a> {
    text: &'a str,
    at: usize,
    out: Vec<u8>,
    exact: bool,
}

impl<'a> Writer<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Consumes the expected byte.
    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Skips whitespace, which BSON does not keep.
    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
            self.exact = false;
        }
    }

    /// Writes the elements of the object that is the whole body.
    fn top(&mut self, ours: &str) -> Option<()> {
        self.object(1, |key| key != "_id" && key != ours && !key.starts_with('$'))
    }

    /// Writes the elements of an object. Omits fields that BSON can't hold.
    fn object(&mut self, depth: usize, fits: impl Fn(&str) -> bool) -> Option<()> {
        self.expect(b'{')?;
        self.space();
        if self.peek()? == b'}' {
            return self.expect(b'}');
        }
        loop {
            let key = self.string()?;
            self.space();
            self.expect(b':')?;
            self.space();
            let before = self.out.len();
            self.element(key.as_bytes(), depth)?;
            if !fits(&key) || key.contains('\0') {
                self.out.truncate(before);
                self.exact = false;
            }
            self.space();
            match self.peek()? {
                b',' => self.at += 1,
                _ => return self.expect(b'}'),
            }
            self.space();
        }
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        self.expect(b'[')?;
        self.space();
        if self.peek()? == b']' {
            return self.expect(b']');
        }
        let mut key = String::new();
        for index in 0_usize.. {
            key.clear();
            write!(key, "{index}").ok()?;
            self.element(key.as_bytes(), depth)?;
            self.space();
            match self.peek()? {
                b',' => self.at += 1,
                _ => return self.expect(b']'),
            }
            self.space();
        }
        None
    }

    /// Writes one element: its type, its name and its value.
    fn element(&mut self, key: &[u8], depth: usize) -> Option<()> {
        match self.peek()? {
            b'{' if self.is_extended() => {
                if let Some(()) = self.extended(key) {
                    return Some(());
                }
                self.nested(ElementType::EmbeddedDocument, key, depth)
            }
            b'{' => self.nested(ElementType::EmbeddedDocument, key, depth),
            b'[' => self.nested(ElementType::Array, key, depth),
            b'"' => {
                let text = self.string()?;
                self.name(ElementType::String, key);
                let length = i32::try_from(text.len() + 1).ok()?;
                self.out.extend_from_slice(&length.to_le_bytes());
                self.out.extend_from_slice(text.as_bytes());
                self.out.push(0);
                Some(())
            }
            b't' => self.word("true", ElementType::Boolean, key, &[1]),
            b'f' => self.word("false", ElementType::Boolean, key, &[0]),
            b'n' => self.word("null", ElementType::Null, key, &[]),
            _ => self.number(key),
        }
    }

    fn name(&mut self, of: ElementType, key: &[u8]) {
        self.out.push(of as u8);
        self.out.extend_from_slice(key);
        self.out.push(0);
    }

    fn word(&mut self, word: &str, of: ElementType, key: &[u8], value: &[u8]) -> Option<()> {
        self.text[self.at..].starts_with(word).then(|| self.at += word.len())?;
        self.name(of, key);
        self.out.extend_from_slice(value);
        Some(())
    }

    /// Writes an object or an array, preceded by its length.
    fn nested(&mut self, of: ElementType, key: &[u8], depth: usize) -> Option<()> {
        let begin = self.out.len();
        self.name(of, key);
        let start = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        if of == ElementType::Array { self.array(depth + 1) } else { self.object(depth + 1, |_| true) }?;
        self.out.push(0);
        let length = i32::try_from(self.out.len() - start).ok()?;
        self.out[start..start + 4].copy_from_slice(&length.to_le_bytes());
        if depth > MAX_DEPTH {
            self.out.truncate(begin);
            self.exact = false;
        }
        Some(())
    }

    /// Returns whether an object starts here whose first field name begins with `$`, as in extended
    /// JSON and MongoDB operators.
    fn is_extended(&self) -> bool {
        self.text[self.at..].starts_with("{\"$")
    }

    /// Writes an object that stands for a BSON value. Returns `None` and writes nothing if it does
    /// not.
    fn extended(&mut self, key: &[u8]) -> Option<()> {
        let mut values = serde_json::Deserializer::from_str(&self.text[self.at..]).into_iter();
        let value: serde_json::Value = values.next()?.ok()?;
        let length = values.byte_offset();
        let value = Bson::try_from(value).ok().filter(|value| !matches!(value, Bson::Document(_)))?;
        let exact =
            format!("{}", value.clone().into_canonical_extjson()) == self.text[self.at..self.at + length];
        let mut document = RawDocumentBuf::new();
        document.append(bson::raw::cstr!("v"), bson::RawBson::try_from(value).ok()?);
        let bytes = document.as_bytes();
        // The bytes between the length and the final zero are: the type, "v", zero, the value.
        let (of, value) = (*bytes.get(4)?, bytes.get(7..bytes.len() - 1)?);
        self.out.push(of);
        self.out.extend_from_slice(key);
        self.out.push(0);
        self.out.extend_from_slice(value);
        self.at += length;
        self.exact &= exact;
        Some(())
    }

    /// Reads a string, without its quotes and escapes.
    fn string(&mut self) -> Option<std::borrow::Cow<'a, str>> {
        self.expect(b'"')?;
        let (text, begin) = (self.text, self.at);
        let mut escaped = false;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    self.at += 2;
                }
                _ => self.at += 1,
            }
        }
        self.at += 1;
        if !escaped {
            return Some(text[begin..self.at - 1].into());
        }
        let quoted = &text[begin - 1..self.at];
        // An unpaired surrogate is valid in JSON but is not valid text.
        let plain = serde_json::from_str::<String>(quoted).unwrap_or_default();
        self.exact &= serde_json::to_string(&plain).is_ok_and(|again| again == quoted);
        Some(plain.into())
    }

    fn number(&mut self, key: &[u8]) -> Option<()> {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'));
        let number = &rest[..end.unwrap_or(rest.len())];
        self.at += number.len();
        match number.parse::<i64>() {
            Ok(integer) if number != "-0" => {
                if let Ok(small) = i32::try_from(integer) {
                    self.name(ElementType::Int32, key);
                    self.out.extend_from_slice(&small.to_le_bytes());
                } else {
                    self.name(ElementType::Int64, key);
                    self.out.extend_from_slice(&integer.to_le_bytes());
                }
            }
            _ => {
                let float: f64 = number.parse().ok()?;
                self.exact &= serde_json::to_string(&float).is_ok_and(|again| again == number);
                self.name(ElementType::Double, key);
                self.out.extend_from_slice(&float.to_le_bytes());
            }
        }
        Some(())
    }
}

fn quote(out: &mut String, text: &str) -> Result<(), Failure> {
    let quoted = serde_json::to_string(text).map_err(|error| Failure::damaged(error.to_string()))?;
    out.push_str(&quoted);
    Ok(())
}

/// Writes a value as JSON text.
fn write(out: &mut String, value: RawBsonRef<'_>, style: Style) -> Result<(), Failure> {
    let is_plain = style != Style::Canonical;
    match value {
        RawBsonRef::String(text) => quote(out, text)?,
        RawBsonRef::Int32(number) if is_plain => write!(out, "{number}")?,
        RawBsonRef::Int64(number) if is_plain => write!(out, "{number}")?,
        RawBsonRef::Boolean(is) => out.push_str(if is { "true" } else { "false" }),
        RawBsonRef::Null => out.push_str("null"),
        RawBsonRef::Double(number) if number.is_finite() => {
            let number =
                serde_json::to_string(&number).map_err(|error| Failure::damaged(error.to_string()))?;
            // The `bson` crate writes the smallest numbers in the relaxed notation.
            if is_plain { out.push_str(&number) } else { write!(out, r#"{{"$numberDouble":"{number}"}}"#)? }
        }
        RawBsonRef::Document(document) => write_object(out, document, style, |_| true)?,
        RawBsonRef::Array(array) => {
            out.push('[');
            for (index, value) in array.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(out, value?, style)?;
            }
            out.push(']');
        }
        other => {
            let value = Bson::try_from(other)?;
            let value = match style {
                Style::Relaxed => value.into_relaxed_extjson(),
                Style::Stored | Style::Canonical => value.into_canonical_extjson(),
            };
            write!(out, "{value}")?;
        }
    }
    Ok(())
}

/// Writes the wanted fields as a JSON object.
fn write_object(
    out: &mut String,
    document: &RawDocument,
    style: Style,
    wanted: impl Fn(&str) -> bool,
) -> Result<(), Failure> {
    out.push('{');
    let mut first = true;
    for element in document {
        let (key, value) = element?;
        if wanted(key.as_str()) {
            if !std::mem::replace(&mut first, false) {
                out.push(',');
            }
            quote(out, key.as_str())?;
            out.push(':');
            write(out, value, style)?;
        }
    }
    out.push('}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, Document, doc};
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
