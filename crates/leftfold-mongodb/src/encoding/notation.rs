//! BSON values as JSON text, and extended JSON as BSON values.

use std::fmt::Write as _;

use bson::raw::RawBsonRef;
use bson::{Bson, RawDocument, RawDocumentBuf};

use super::elements::Writer;
use crate::error::Failure;

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
    let mut writer = Writer::new(text, vec![0; 4]);
    writer.space();
    writer.element(b"v", 1)?;
    let mut bytes = writer.out;
    bytes.push(0);
    let length = i32::try_from(bytes.len()).ok()?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    let document = RawDocumentBuf::from_bytes(bytes).ok()?;
    Bson::try_from(document.get("v").ok()??).ok()
}

/// Writes a value as JSON text.
pub(super) fn write(out: &mut String, value: RawBsonRef<'_>, style: Style) -> Result<(), Failure> {
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
pub(super) fn write_object(
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

fn quote(out: &mut String, text: &str) -> Result<(), Failure> {
    let quoted = serde_json::to_string(text).map_err(|error| Failure::damaged(error.to_string()))?;
    out.push_str(&quoted);
    Ok(())
}
