//! JSON as text, known to be valid: what events carry and documents are stored as.

mod finite;

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use self::finite::Finite;
use crate::error::Invalid;

/// A valid JSON text. It is parsed only where its content is needed.
#[derive(Clone, PartialEq, Eq)]
pub struct Json(Box<str>);

impl Json {
    /// Checks that the text is JSON.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        match serde_json::from_str::<&RawValue>(text) {
            Ok(raw) => Ok(Self(raw.get().into())),
            Err(error) => Err(Invalid::new("json", text, format!("valid JSON: {error}"))),
        }
    }

    /// Takes back what a store kept: it was checked when it went in.
    pub fn stored(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// Serializes a value. Numbers that are none, or infinite, are refused: JSON does not have them.
    pub fn of(value: &impl Serialize) -> Result<Self, Invalid> {
        match serde_json::to_string(&Finite(value)) {
            Ok(text) => Ok(Self(text.into())),
            Err(error) => Err(Invalid::new("json", "", format!("a value that serializes to JSON: {error}"))),
        }
    }

    /// Reads it as a value of type `T`; the error names the field.
    pub fn to<T: DeserializeOwned>(&self) -> Result<T, Invalid> {
        serde_json::from_str(&self.0).map_err(|_| {
            let mut deserializer = serde_json::Deserializer::from_str(&self.0);
            match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
                Err(error) => {
                    Invalid::new("json", &self.0, format!("at `{}`: {}", error.path(), error.inner()))
                }
                Ok(_) => Invalid::new("json", &self.0, "nothing after the value"),
            }
        })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, as one that can be changed.
    pub fn into_string(self) -> String {
        self.0.into()
    }

    /// Whether both say the same, whatever their spacing and order of fields.
    pub fn same_as(&self, other: &Self) -> bool {
        let value = |json: &Self| serde_json::from_str::<serde_json::Value>(&json.0).ok();
        self.0 == other.0 || (value(self).is_some() && value(self) == value(other))
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::from_str::<&RawValue>(&self.0).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Box::<RawValue>::deserialize(deserializer)?.get().into()))
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
            assert!(error.contains("is no number that JSON has"), "{error}");
        }
    }
}
