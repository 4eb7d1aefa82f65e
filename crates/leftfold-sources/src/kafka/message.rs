//! Messages and errors of the Kafka client.

use leftfold::{Error, Kind};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};

use crate::message::Message;

/// Returns a message with everything that Kafka provides.
pub(super) fn message_of(received: &BorrowedMessage<'_>) -> Message {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut message = Message::new(received.payload().unwrap_or_default());
    for header in received.headers().into_iter().flat_map(rdkafka::message::Headers::iter) {
        if let Some(value) = header.value {
            message = message.with(header.key, lossy(value));
        }
    }
    if let Some(key) = received.key() {
        message = message.with("key", lossy(key));
    }
    if let Some(timestamp) = received.timestamp().to_millis() {
        message = message.with("timestamp", timestamp.to_string());
    }
    message
        .with("topic", received.topic())
        .with("partition", received.partition().to_string())
        .with("offset", received.offset().to_string())
}

/// Returns an error of the Kafka client as one of the feed.
pub(super) fn failure(doing: &str, error: KafkaError) -> Error {
    use RDKafkaErrorCode as Code;
    let kind = match error.rdkafka_error_code() {
        _ if matches!(error, KafkaError::ClientConfig(..)) => Kind::Invalid,
        Some(
            Code::TopicAuthorizationFailed
            | Code::GroupAuthorizationFailed
            | Code::Authentication
            | Code::InvalidTopic,
        ) => Kind::Invalid,
        _ => Kind::Unavailable,
    };
    Error::new(kind, doing).with_source(error)
}
