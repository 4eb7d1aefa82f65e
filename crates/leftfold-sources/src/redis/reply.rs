//! Replies of the server, and messages in them.

use ::redis::{RedisError, Value};
use leftfold::{Error, Kind};
use serde_json::json;

use crate::message::Message;

/// Returns the entries of the only stream that was read.
pub(super) fn first_stream(answer: Value) -> Vec<Value> {
    let stream = match answer {
        Value::Array(streams) => streams.into_iter().next(),
        Value::Map(streams) => {
            return streams.into_iter().next().map(|(_, entries)| items(entries)).unwrap_or_default();
        }
        _ => None,
    };
    stream.map(items).and_then(|parts| parts.into_iter().nth(1)).map(items).unwrap_or_default()
}

pub(super) fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

pub(super) fn id(entry: &Value) -> Option<String> {
    match entry {
        Value::Array(parts) => parts.first().and_then(text),
        _ => None,
    }
}

/// Returns an entry's fields, or `None` if it was deleted from the stream.
pub(super) fn fields(entry: Value) -> Option<Vec<(String, Vec<u8>)>> {
    let Value::Array(parts) = items(entry).into_iter().nth(1)? else { return None };
    let mut fields = Vec::with_capacity(parts.len() / 2);
    let mut parts = parts.into_iter();
    while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
        let Value::BulkString(value) = value else { continue };
        fields.push((text(&name).unwrap_or_default(), value));
    }
    Some(fields)
}

pub(super) fn message(fields: Vec<(String, Vec<u8>)>, content_field: &str, id: &str) -> Message {
    let (mut message, mut content) = (Message::default(), None);
    for (name, value) in fields {
        if name == content_field {
            content = Some(value);
        } else {
            message = message.with(&name, String::from_utf8_lossy(&value));
        }
    }
    message.content = content.unwrap_or_else(|| json!(message.attributes).to_string().into_bytes());
    message.with("redis-id", id)
}

pub(super) fn failure(doing: &str, error: RedisError) -> Error {
    let kind = match error.code() {
        Some("WRONGTYPE" | "NOAUTH" | "WRONGPASS" | "NOPERM") => Kind::Invalid,
        _ => Kind::Unavailable,
    };
    Error::new(kind, doing).with_source(error)
}
