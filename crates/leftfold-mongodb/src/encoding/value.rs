//! Conversion between BSON and the values of filters and their documents.

use bson::oid::ObjectId;
use bson::{Binary, Bson, DateTime, Document, JavaScriptCodeWithScope, Regex, Timestamp};
use leftfold::Invalid;
use leftfold::react::{Fields, Value};

/// Converts a BSON value.
pub fn from_bson(bson: Bson) -> Value {
    match bson {
        Bson::Double(number) => Value::Double(number),
        Bson::String(text) => Value::String(text),
        Bson::Array(items) => Value::Array(items.into_iter().map(from_bson).collect()),
        Bson::Document(document) => Value::Object(fields(document)),
        Bson::Boolean(is) => Value::Bool(is),
        Bson::Null => Value::Null,
        Bson::RegularExpression(Regex { pattern, options }) => {
            Value::Regex { pattern: pattern.to_string(), options: options.to_string() }
        }
        Bson::JavaScriptCode(code) => Value::Code(code),
        Bson::JavaScriptCodeWithScope(code) => Value::CodeWithScope(code.code, fields(code.scope)),
        Bson::Int32(number) => Value::Int32(number),
        Bson::Int64(number) => Value::Int64(number),
        Bson::Timestamp(Timestamp { time, increment }) => Value::Timestamp { time, increment },
        Bson::Binary(Binary { subtype, bytes }) => Value::Binary { subtype: subtype.into(), bytes },
        Bson::ObjectId(id) => Value::Id(id.bytes()),
        Bson::DateTime(date) => Value::Date(date.timestamp_millis()),
        Bson::Symbol(text) => Value::Symbol(text),
        Bson::Undefined => Value::Undefined,
        Bson::MaxKey => Value::MaxKey,
        Bson::MinKey => Value::MinKey,
        // Only extended JSON gives access to the parts of these types.
        Bson::Decimal128(_) | Bson::DbPointer(_) => bson.into_canonical_extjson().into(),
    }
}

fn fields(document: Document) -> Fields {
    document.into_iter().map(|(name, value)| (name, from_bson(value))).collect()
}

/// Converts a value to BSON. Fails if BSON can't hold it: a regular expression with a zero
/// character.
pub fn to_bson(value: Value) -> Result<Bson, Invalid> {
    let invalid = |value: &Value| Invalid::new("value", &value.to_string(), "a value that BSON can hold");
    Ok(match value {
        Value::Double(number) => Bson::Double(number),
        Value::String(text) => Bson::String(text),
        Value::Array(items) => Bson::Array(items.into_iter().map(to_bson).collect::<Result<_, _>>()?),
        Value::Object(fields) => Bson::Document(document(fields)?),
        Value::Bool(is) => Bson::Boolean(is),
        Value::Null => Bson::Null,
        Value::Code(code) => Bson::JavaScriptCode(code),
        Value::CodeWithScope(code, scope) => {
            Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope { code, scope: document(scope)? })
        }
        Value::Int32(number) => Bson::Int32(number),
        Value::Int64(number) => Bson::Int64(number),
        Value::Timestamp { time, increment } => Bson::Timestamp(Timestamp { time, increment }),
        Value::Binary { subtype, bytes } => Bson::Binary(Binary { subtype: subtype.into(), bytes }),
        Value::Id(id) => Bson::ObjectId(ObjectId::from_bytes(id)),
        Value::Date(millis) => Bson::DateTime(DateTime::from_millis(millis)),
        Value::Symbol(text) => Bson::Symbol(text),
        Value::Undefined => Bson::Undefined,
        Value::MaxKey => Bson::MaxKey,
        Value::MinKey => Bson::MinKey,
        Value::Decimal(_) | Value::DbPointer { .. } | Value::Regex { .. } => {
            let json = serde_json::to_value(&value).map_err(|_| invalid(&value))?;
            Bson::try_from(json).map_err(|_| invalid(&value))?
        }
    })
}

fn document(fields: Fields) -> Result<Document, Invalid> {
    fields.into_iter().map(|(name, value)| Ok((name, to_bson(value)?))).collect()
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
        let value = from_bson(there.clone().into());
        assert_eq!(to_bson(value.clone()).unwrap(), Bson::Document(there));
        let read: Value = value.to_string().parse().unwrap();
        assert_eq!(read.to_string(), value.to_string());
        assert_eq!(read, value);
    }
}
