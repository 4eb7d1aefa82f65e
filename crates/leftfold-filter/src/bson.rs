//! Conversion from and to BSON.

use bson::oid::ObjectId;
use bson::{Binary, Bson, DateTime, Document, JavaScriptCodeWithScope, Regex, Timestamp};

use crate::error::Error;
use crate::value::{Fields, Value};

impl From<Bson> for Value {
    fn from(bson: Bson) -> Self {
        match bson {
            Bson::Double(number) => Self::Double(number),
            Bson::String(text) => Self::String(text),
            Bson::Array(items) => Self::Array(items.into_iter().map(Into::into).collect()),
            Bson::Document(document) => Self::Object(fields(document)),
            Bson::Boolean(is) => Self::Bool(is),
            Bson::Null => Self::Null,
            Bson::RegularExpression(Regex { pattern, options }) => {
                Self::Regex { pattern: pattern.to_string(), options: options.to_string() }
            }
            Bson::JavaScriptCode(code) => Self::Code(code),
            Bson::JavaScriptCodeWithScope(code) => Self::CodeWithScope(code.code, fields(code.scope)),
            Bson::Int32(number) => Self::Int32(number),
            Bson::Int64(number) => Self::Int64(number),
            Bson::Timestamp(Timestamp { time, increment }) => Self::Timestamp { time, increment },
            Bson::Binary(Binary { subtype, bytes }) => Self::Binary { subtype: subtype.into(), bytes },
            Bson::ObjectId(id) => Self::Id(id.bytes()),
            Bson::DateTime(date) => Self::Date(date.timestamp_millis()),
            Bson::Symbol(text) => Self::Symbol(text),
            Bson::Undefined => Self::Undefined,
            Bson::MaxKey => Self::MaxKey,
            Bson::MinKey => Self::MinKey,
            // Only extended JSON gives access to the parts of these types.
            Bson::Decimal128(_) | Bson::DbPointer(_) => bson.into_canonical_extjson().into(),
        }
    }
}

fn fields(document: Document) -> Fields {
    document.into_iter().map(|(name, value)| (name, value.into())).collect()
}

impl TryFrom<Value> for Bson {
    type Error = Error;

    /// Converts a value to BSON. Fails if BSON can't hold it: a regular expression with a zero
    /// character.
    fn try_from(value: Value) -> Result<Self, Error> {
        let invalid = |value: &Value| Error::new("value", &value.to_string(), "a value that BSON can hold");
        Ok(match value {
            Value::Double(number) => Self::Double(number),
            Value::String(text) => Self::String(text),
            Value::Array(items) => {
                Self::Array(items.into_iter().map(Self::try_from).collect::<Result<_, _>>()?)
            }
            Value::Object(fields) => Self::Document(document(fields)?),
            Value::Bool(is) => Self::Boolean(is),
            Value::Null => Self::Null,
            Value::Code(code) => Self::JavaScriptCode(code),
            Value::CodeWithScope(code, scope) => {
                Self::JavaScriptCodeWithScope(JavaScriptCodeWithScope { code, scope: document(scope)? })
            }
            Value::Int32(number) => Self::Int32(number),
            Value::Int64(number) => Self::Int64(number),
            Value::Timestamp { time, increment } => Self::Timestamp(Timestamp { time, increment }),
            Value::Binary { subtype, bytes } => Self::Binary(Binary { subtype: subtype.into(), bytes }),
            Value::Id(id) => Self::ObjectId(ObjectId::from_bytes(id)),
            Value::Date(millis) => Self::DateTime(DateTime::from_millis(millis)),
            Value::Symbol(text) => Self::Symbol(text),
            Value::Undefined => Self::Undefined,
            Value::MaxKey => Self::MaxKey,
            Value::MinKey => Self::MinKey,
            Value::Decimal(_) | Value::DbPointer { .. } | Value::Regex { .. } => {
                let json = serde_json::to_value(&value).map_err(|_| invalid(&value))?;
                Self::try_from(json).map_err(|_| invalid(&value))?
            }
        })
    }
}

fn document(fields: Fields) -> Result<Document, Error> {
    fields.into_iter().map(|(name, value)| Ok((name, value.try_into()?))).collect()
}

#[cfg(test)]
mod tests {
    use bson::{Decimal128, doc};

    use super::*;

    #[test]
    fn every_type_comes_back() {
        let there = doc! {
            "double": 1.5, "text": "a", "array": [1, "b", { "c": null }], "object": { "z": 1, "a": 2_i64 }, "bool": true,
            "regex": Regex { pattern: "^a".to_owned().try_into().unwrap(), options: "im".to_owned().try_into().unwrap() },
            "code": Bson::JavaScriptCode("f()".into()),
            "scope": JavaScriptCodeWithScope { code: "f()".into(), scope: doc! { "x": 1 } },
            "timestamp": Timestamp { time: 1, increment: 2 },
            "binary": Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] },
            "id": ObjectId::from_bytes([9; 12]), "date": DateTime::from_millis(-1), "symbol": Bson::Symbol("s".into()),
            "undefined": Bson::Undefined, "min": Bson::MinKey, "max": Bson::MaxKey,
            "decimal": "-1.50".parse::<Decimal128>().unwrap(),
            "pointer": Bson::try_from(serde_json::json!({ "$dbPointer": {
                "$ref": "shop.carts", "$id": { "$oid": "0123456789abcdef01234567" } } })).unwrap(),
        };
        let value = Value::from(Bson::from(there.clone()));
        assert_eq!(Bson::try_from(value.clone()).unwrap(), Bson::Document(there));
        let read: Value = value.to_string().parse().unwrap();
        assert_eq!(read.to_string(), value.to_string());
        assert_eq!(read, value);
    }
}
