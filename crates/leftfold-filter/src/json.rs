//! Conversion of values from and to JSON, including extended JSON.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::error::Error;
use crate::value::{Fields, Value};

impl Value {
    /// Creates an object, or the value that it represents in extended JSON.
    fn of_fields(fields: Fields) -> Self {
        match fields.first() {
            Some((name, _)) if name.starts_with('$') => extended(&fields).unwrap_or(Self::Object(fields)),
            _ => Self::Object(fields),
        }
    }

    /// Creates a whole number of the narrowest type.
    pub fn of_int(number: i64) -> Self {
        i32::try_from(number).map_or(Self::Int64(number), Self::Int32)
    }
}

/// Returns the value that an object represents in extended JSON. Nested values are already
/// converted.
fn extended(fields: &Fields) -> Option<Value> {
    let text = |of: &Value, name| match of.get(name) {
        Some(Value::String(text)) => Some(text.clone()),
        _ => None,
    };
    let part = |of: &Value, name| u32::try_from(of.get(name)?.truncated()?).ok();
    let (name, value) = match &fields[..] {
        [(name, value)] => (name, value),
        [(code, Value::String(text)), (scope, Value::Object(fields))]
            if code == "$code" && scope == "$scope" =>
        {
            return Some(Value::CodeWithScope(text.clone(), fields.clone()));
        }
        _ => return None,
    };
    match (name.as_str(), value) {
        ("$oid", Value::String(hex)) => id(hex).map(Value::Id),
        ("$date", Value::String(text)) => text.parse().ok().map(|time| Value::Date(millis(time))),
        ("$date", Value::Int32(millis)) => Some(Value::Date((*millis).into())),
        ("$date", Value::Int64(millis)) => Some(Value::Date(*millis)),
        ("$numberInt", Value::String(text)) => text.parse().ok().map(Value::Int32),
        ("$numberLong", Value::String(text)) => text.parse().ok().map(Value::Int64),
        ("$numberDouble", Value::String(text)) => text.parse().ok().map(Value::Double),
        ("$numberDecimal", Value::String(text)) => text.parse().ok().map(Value::Decimal),
        ("$symbol", Value::String(text)) => Some(Value::Symbol(text.clone())),
        ("$code", Value::String(text)) => Some(Value::Code(text.clone())),
        ("$uuid", Value::String(text)) => {
            let bytes = Uuid::try_parse(text).ok()?.as_bytes().to_vec();
            Some(Value::Binary { subtype: 4, bytes })
        }
        ("$binary", Value::Object(two)) if two.len() == 2 => {
            let bytes = STANDARD.decode(text(value, "base64")?).ok()?;
            let subtype = u8::from_str_radix(&text(value, "subType")?, 16).ok()?;
            Some(Value::Binary { subtype, bytes })
        }
        ("$timestamp", Value::Object(two)) if two.len() == 2 => {
            Some(Value::Timestamp { time: part(value, "t")?, increment: part(value, "i")? })
        }
        ("$regularExpression", Value::Object(two)) if two.len() == 2 => {
            let mut options: Vec<_> = text(value, "options")?.chars().collect();
            options.sort_unstable();
            Some(Value::Regex { pattern: text(value, "pattern")?, options: options.into_iter().collect() })
        }
        ("$dbPointer", Value::Object(two)) if two.len() == 2 => match value.get("$id") {
            Some(Value::Id(id)) => Some(Value::DbPointer { namespace: text(value, "$ref")?, id: *id }),
            _ => None,
        },
        ("$minKey", Value::Int32(1)) => Some(Value::MinKey),
        ("$maxKey", Value::Int32(1)) => Some(Value::MaxKey),
        ("$undefined", Value::Bool(true)) => Some(Value::Undefined),
        _ => None,
    }
}

fn id(hex: &str) -> Option<[u8; 12]> {
    let number = u128::from_str_radix(hex, 16).ok().filter(|_| hex.len() == 24 && !hex.starts_with('+'))?;
    number.to_be_bytes()[4..].try_into().ok()
}

/// Returns the milliseconds since 1970, rounded down.
pub(crate) fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond().div_euclid(1_000_000)).unwrap_or_else(|_| time.as_millisecond())
}

impl From<serde_json::Value> for Value {
    fn from(json: serde_json::Value) -> Self {
        use serde_json::Value as Json;
        match json {
            Json::Null => Self::Null,
            Json::Bool(is) => Self::Bool(is),
            Json::Number(number) => match number.as_i64() {
                Some(int) => Self::of_int(int),
                None => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::String(text),
            Json::Array(items) => Self::Array(items.into_iter().map(Into::into).collect()),
            Json::Object(fields) => {
                Self::of_fields(fields.into_iter().map(|(name, value)| (name, value.into())).collect())
            }
        }
    }
}

impl FromStr for Value {
    type Err = Error;

    /// Parses a value from JSON text.
    fn from_str(text: &str) -> Result<Self, Error> {
        serde_json::from_str(text).map_err(|error| Error::new("json", text, format!("valid JSON: {error}")))
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, is: bool) -> Result<Value, E> {
        Ok(Value::Bool(is))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::of_int(number))
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "MongoDB also rounds a number that is too large for an integer"
    )]
    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(i64::try_from(number).map_or(Value::Double(number as f64), Value::of_int))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Double(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = entries.next_entry()? {
            fields.push(field);
        }
        Ok(Value::of_fields(fields))
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(is) => serializer.serialize_bool(*is),
            Self::Int32(number) => serializer.serialize_i32(*number),
            Self::Int64(number) if i32::try_from(*number).is_err() => serializer.serialize_i64(*number),
            Self::Double(number) if number.is_finite() => serializer.serialize_f64(*number),
            Self::String(text) => serializer.serialize_str(text),
            Self::Array(items) => serializer.collect_seq(items),
            Self::Object(fields) => object(serializer, fields),
            Self::Int64(number) => only(serializer, "$numberLong", &number.to_string()),
            Self::Double(number) if number.is_nan() => only(serializer, "$numberDouble", "NaN"),
            Self::Double(number) => {
                only(serializer, "$numberDouble", if *number > 0.0 { "Infinity" } else { "-Infinity" })
            }
            Self::Decimal(number) => only(serializer, "$numberDecimal", &number.to_string()),
            Self::Date(millis) => only(serializer, "$date", &One("$numberLong", millis.to_string())),
            Self::Id(id) => only(serializer, "$oid", &hex(id)),
            Self::Symbol(text) => only(serializer, "$symbol", text),
            Self::Code(text) => only(serializer, "$code", text),
            Self::CodeWithScope(text, scope) => {
                let scope = Self::Object(scope.clone());
                object(
                    serializer,
                    &vec![("$code".into(), Self::String(text.clone())), ("$scope".into(), scope)],
                )
            }
            Self::Binary { subtype, bytes } => {
                let two = Two(("base64", STANDARD.encode(bytes)), ("subType", format!("{subtype:02x}")));
                only(serializer, "$binary", &two)
            }
            Self::Timestamp { time, increment } => {
                only(serializer, "$timestamp", &Two(("t", *time), ("i", *increment)))
            }
            Self::Regex { pattern, options } => {
                only(serializer, "$regularExpression", &Two(("pattern", pattern), ("options", options)))
            }
            Self::DbPointer { namespace, id } => {
                only(serializer, "$dbPointer", &Two(("$ref", namespace), ("$id", One("$oid", hex(id)))))
            }
            Self::MinKey => only(serializer, "$minKey", &1),
            Self::MaxKey => only(serializer, "$maxKey", &1),
            Self::Undefined => only(serializer, "$undefined", &true),
        }
    }
}

fn hex(id: &[u8; 12]) -> String {
    let mut bytes = [0; 16];
    bytes[4..].copy_from_slice(id);
    format!("{:024x}", u128::from_be_bytes(bytes))
}

fn object<S: Serializer>(serializer: S, fields: &Fields) -> Result<S::Ok, S::Error> {
    serializer.collect_map(fields.iter().map(|(name, value)| (name, value)))
}

fn only<S: Serializer>(
    serializer: S,
    name: &str,
    value: &(impl Serialize + ?Sized),
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(1))?;
    map.serialize_entry(name, value)?;
    map.end()
}

/// An object with one field.
struct One(&'static str, String);

impl Serialize for One {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        only(serializer, self.0, &self.1)
    }
}

/// An object with two fields.
struct Two<A, B>((&'static str, A), (&'static str, B));

impl<A: Serialize, B: Serialize> Serialize for Two<A, B> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry(self.0.0, &self.0.1)?;
        map.serialize_entry(self.1.0, &self.1.1)?;
        map.end()
    }
}

impl fmt::Display for Value {
    /// Writes the value as JSON text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}
