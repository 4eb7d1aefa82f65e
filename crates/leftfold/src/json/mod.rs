//! JSON as validated text: the data of events and the bodies of documents.

mod finite;
mod strict;

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use self::finite::Finite;
pub use self::strict::JsonFault;
use crate::error::Invalid;

/// A valid JSON text. It is parsed only when its content is needed.
///
/// JSON that enters the system must also be [strict](Self::strict). A value remembers that it was
/// checked, so that no text is checked twice.
#[derive(Clone)]
pub struct Json {
    text: Box<str>,
    /// `true` if the text is known to be strict.
    is_strict: bool,
}

impl Json {
    /// The deepest nesting of arrays and objects in a strict text.
    pub const MAX_DEPTH: usize = 127;

    /// Checks that the text is JSON.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        match serde_json::from_str::<&RawValue>(text) {
            Ok(raw) => Ok(Self::stored(raw.get())),
            Err(error) => Err(Invalid::new("json", text, format!("valid JSON: {error}"))),
        }
    }

    /// Checks that the text is JSON that every reader can parse, with the same result:
    ///
    /// - strings are well-formed Unicode: no escape is half a surrogate pair
    /// - numbers fit a 64-bit float: `1e999` does not
    /// - no object has the same key twice
    /// - arrays and objects are nested at most [`MAX_DEPTH`](Self::MAX_DEPTH) deep
    ///
    /// Every event must pass, whatever its source.
    ///
    /// ```
    /// use leftfold::Json;
    ///
    /// let half = Json::strict(r#"{"items":[{"name":"\ud83d"}]}"#).unwrap_err();
    /// assert_eq!(half.path(), "items[0].name");
    /// ```
    pub fn strict(text: &str) -> Result<Self, JsonFault> {
        Self::strict_within(text, Self::MAX_DEPTH)
    }

    /// Does the same with a smaller bound on the depth.
    pub fn strict_within(text: &str, depth: usize) -> Result<Self, JsonFault> {
        strict::check(text.as_bytes(), depth)?;
        // Only JSON whitespace can surround a value that passed.
        Ok(Self { text: text.trim().into(), is_strict: true })
    }

    /// Checks a text by the rules of [`strict`](Self::strict) without keeping it.
    pub fn check_strict(text: &[u8]) -> Result<(), JsonFault> {
        strict::check(text, Self::MAX_DEPTH)
    }

    /// Checks the rules of [`strict`](Self::strict), unless the text is known to follow them.
    pub fn ensure_strict(&self) -> Result<(), JsonFault> {
        if self.is_strict { Ok(()) } else { Self::check_strict(self.text.as_bytes()) }
    }

    /// Checks the rules of [`strict`](Self::strict) with a smaller bound on the depth.
    pub(crate) fn ensure_strict_within(&self, depth: usize) -> Result<(), JsonFault> {
        strict::check(self.text.as_bytes(), depth)
    }

    /// Marks it as strict. The caller has [checked](Self::check_strict) the text it is a part of,
    /// or has produced it.
    #[must_use]
    pub fn assume_strict(self) -> Self {
        Self { is_strict: true, ..self }
    }

    /// Restores a text from a store, which validated it when it was written.
    pub fn stored(text: impl Into<Box<str>>) -> Self {
        Self { text: text.into(), is_strict: false }
    }

    /// Wraps bytes from a store that are no longer valid text. Readers find it
    /// [damaged](Self::damage).
    pub fn damaged(bytes: &[u8]) -> Self {
        // No valid JSON begins with this character.
        Self::stored(format!("\u{fffd}{}", String::from_utf8_lossy(bytes)))
    }

    /// Returns the reason why no reader can parse it, if its store has damaged it.
    pub fn damage(&self) -> Option<JsonFault> {
        self.ensure_strict().err()
    }

    /// Serializes a value. It rejects NaN and infinite numbers, which JSON does not have.
    pub fn of(value: &impl Serialize) -> Result<Self, Invalid> {
        match serde_json::to_string(&Finite(value)) {
            Ok(text) => Ok(Self::stored(text)),
            Err(error) => Err(Invalid::new("json", "", format!("a value that serializes to JSON: {error}"))),
        }
    }

    /// Deserializes it as a `T`; the error names the field.
    pub fn to<T: DeserializeOwned>(&self) -> Result<T, Invalid> {
        serde_json::from_str(&self.text).map_err(|_| {
            let mut deserializer = serde_json::Deserializer::from_str(&self.text);
            match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
                Err(error) => {
                    Invalid::new("json", &self.text, format!("at `{}`: {}", error.path(), error.inner()))
                }
                Ok(_) => Invalid::new("json", &self.text, "nothing after the value"),
            }
        })
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the text as an owned string.
    pub fn into_string(self) -> String {
        self.text.into()
    }

    /// Returns whether both have the same value, whatever their spacing and order of fields.
    pub fn same_as(&self, other: &Self) -> bool {
        let value = |json: &Self| serde_json::from_str::<serde_json::Value>(&json.text).ok();
        self.text == other.text || (value(self).is_some() && value(self) == value(other))
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Json {}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::from_str::<&RawValue>(&self.text)
            .map_err(serde::ser::Error::custom)?
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::stored(Box::<RawValue>::deserialize(deserializer)?.get()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Serialize)]
    enum Shape {
        Dot,
        Circle(f64),
        Line(f32, f64),
        Square { side: f64 },
    }

    #[derive(Serialize)]
    struct Drawing {
        shapes: Vec<Shape>,
        scale: Option<f64>,
        sizes: BTreeMap<u8, (f32, f64)>,
        note: Json,
    }

    fn drawing(number: f64) -> Drawing {
        Drawing {
            shapes: vec![Shape::Dot, Shape::Circle(1.5), Shape::Line(0.5, 2.0), Shape::Square { side: 3.0 }],
            scale: None,
            sizes: BTreeMap::from([(1, (0.25, number))]),
            note: Json::stored(r#"{"as":  "it is"}"#),
        }
    }

    #[test]
    fn finite_numbers_are_written_as_ever() {
        let drawing = drawing(4.0);
        assert_eq!(Json::of(&drawing).unwrap().as_str(), serde_json::to_string(&drawing).unwrap());
    }

    #[test]
    fn what_is_no_number_is_refused_wherever_it_is() {
        let shapes = |shape| Drawing { shapes: vec![shape], ..drawing(1.0) };
        let wrong = [
            drawing(f64::NAN),
            Drawing { scale: Some(f64::INFINITY), ..drawing(1.0) },
            shapes(Shape::Circle(f64::NAN)),
            shapes(Shape::Line(f32::NEG_INFINITY, 1.0)),
            shapes(Shape::Square { side: f64::NAN }),
        ];
        for wrong in wrong {
            let error = Json::of(&wrong).unwrap_err().to_string();
            assert!(error.contains("JSON can't represent"), "{error}");
        }
    }
}
