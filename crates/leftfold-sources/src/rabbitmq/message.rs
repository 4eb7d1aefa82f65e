//! Messages and errors of the AMQP client.

use lapin::message::Delivery;
use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::types::AMQPValue;
use lapin::{Acker, ErrorKind};
use leftfold::{Error, Kind};

use crate::message::Message;

/// Returns a message with everything that the broker provides, and the handle to acknowledge it.
pub(super) fn message_of(delivery: Delivery) -> (Message, Acker) {
    let Delivery { exchange, routing_key, properties, data, acker, .. } = delivery;
    let mut message = Message::new(data);
    if let Some(headers) = properties.headers() {
        for (name, value) in headers {
            if let Some(value) = text(value) {
                message = message.with(name.as_str(), value);
            }
        }
    }
    let named = [
        ("content-type", properties.content_type()),
        ("message-id", properties.message_id()),
        ("correlation-id", properties.correlation_id()),
        ("type", properties.kind()),
        ("app-id", properties.app_id()),
    ];
    for (name, value) in named {
        if let Some(value) = value {
            message = message.with(name, value.as_str());
        }
    }
    if let Some(timestamp) = properties.timestamp() {
        message = message.with("timestamp", timestamp.to_string());
    }
    (message.with("routing-key", routing_key.as_str()).with("exchange", exchange.as_str()), acker)
}

/// Returns a header's value as text, or `None` for lists, tables and void.
fn text(value: &AMQPValue) -> Option<String> {
    Some(match value {
        AMQPValue::Boolean(value) => value.to_string(),
        AMQPValue::ShortShortInt(value) => value.to_string(),
        AMQPValue::ShortShortUInt(value) => value.to_string(),
        AMQPValue::ShortInt(value) => value.to_string(),
        AMQPValue::ShortUInt(value) => value.to_string(),
        AMQPValue::LongInt(value) => value.to_string(),
        AMQPValue::LongUInt(value) => value.to_string(),
        AMQPValue::LongLongInt(value) => value.to_string(),
        AMQPValue::Float(value) => value.to_string(),
        AMQPValue::Double(value) => value.to_string(),
        AMQPValue::ShortString(value) => value.as_str().to_owned(),
        AMQPValue::LongString(value) => String::from_utf8_lossy(value.as_bytes()).into_owned(),
        AMQPValue::Timestamp(value) => value.to_string(),
        AMQPValue::ByteArray(value) => String::from_utf8_lossy(value.as_slice()).into_owned(),
        AMQPValue::DecimalValue(_)
        | AMQPValue::FieldArray(_)
        | AMQPValue::FieldTable(_)
        | AMQPValue::Void => return None,
    })
}

/// Returns an error of the client as one of the feed.
pub(super) fn failure(doing: &str, error: lapin::Error) -> Error {
    use AMQPErrorKind::{Hard, Soft};
    let kind = match error.kind() {
        ErrorKind::ProtocolError(error) => match error.kind() {
            Soft(AMQPSoftError::NOTFOUND | AMQPSoftError::ACCESSREFUSED)
            | Hard(AMQPHardError::NOTALLOWED) => Kind::Invalid,
            _ => Kind::Unavailable,
        },
        _ => Kind::Unavailable,
    };
    Error::new(kind, doing).with_source(error)
}
