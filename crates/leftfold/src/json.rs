//! JSON as text, known to be valid: what events carry and documents are stored as.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

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

    /// Serializes a value.
    pub fn of(value: &impl Serialize) -> Result<Self, Invalid> {
        match serde_json::to_string(value) {
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
