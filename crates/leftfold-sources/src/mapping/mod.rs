//! Maps a message to an event of a stream, or to the reason why it is not one.

mod cloudevents;
mod fields;
mod raw;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use leftfold::{Delivery, Invalid};
use serde::Deserialize;

pub use self::cloudevents::CloudEvents;
#[cfg(feature = "http")]
pub(crate) use self::cloudevents::{BATCH, STRUCTURED};
pub use self::fields::{FieldMapping, Place};
pub use self::raw::Pointer;
use crate::message::Message;

/// A mapping from messages to events.
///
/// In configuration, `format` selects the mapping: `{ format = "cloudevents" }`, the default, or
/// `{ format = "fields", stream = … }`.
///
/// ```
/// use leftfold_sources::{Mapping, Message};
/// use leftfold::Revision;
///
/// let message = Message::new(r#"{"product":"shoes"}"#)
///     .with("content-type", "application/json")
///     .with("ce-specversion", "1.0")
///     .with("ce-id", "e-17")
///     .with("ce-source", "/shop")
///     .with("ce-type", "item-added")
///     .with("ce-subject", "cart-42")
///     .with("ce-sequence", "3");
/// let delivery = Mapping::default().map(&message, "2026-11-16T08:00:00Z".parse()?)?;
/// assert_eq!((delivery.stream.as_str(), delivery.revision), ("cart-42", Some(Revision(3))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "format", rename_all = "lowercase")]
pub enum Mapping {
    /// Messages are CloudEvents 1.0.
    CloudEvents(CloudEvents),
    /// Messages are JSON of any shape.
    Fields(FieldMapping),
}

impl Default for Mapping {
    fn default() -> Self {
        Self::CloudEvents(CloudEvents::default())
    }
}

impl From<CloudEvents> for Mapping {
    fn from(mapping: CloudEvents) -> Self {
        Self::CloudEvents(mapping)
    }
}

impl From<FieldMapping> for Mapping {
    fn from(mapping: FieldMapping) -> Self {
        Self::Fields(mapping)
    }
}

impl Mapping {
    /// Creates a mapping for JSON of any shape, with the stream at this place.
    pub fn fields(stream: Place) -> FieldMapping {
        FieldMapping::new(stream)
    }

    /// Maps a message to an event. An event without a time gets the time when it was received.
    pub fn map(&self, message: &Message, received: Timestamp) -> Result<Delivery, Invalid> {
        match self {
            Self::CloudEvents(mapping) => mapping.map(message, received),
            Self::Fields(mapping) => mapping.map(message, received),
        }
    }

    /// Returns whether a part of an event may come from this attribute, apart from metadata that a
    /// [`FieldMapping`] keeps. The name is in lower case.
    pub fn reads(&self, attribute: &str) -> bool {
        matches!(attribute, "content-type" | "content_type")
            || match self {
                Self::CloudEvents(_) => CloudEvents::reads(attribute),
                Self::Fields(mapping) => mapping.reads(attribute),
            }
    }

    /// Maps the content of an [item](Self::item), mostly without creating its message.
    #[cfg(feature = "http")]
    pub(crate) fn map_item(&self, content: &[u8], received: Timestamp) -> Result<Delivery, Invalid> {
        match self {
            Self::CloudEvents(mapping) => mapping.map_structured(content, received),
            Self::Fields(_) => self.map(&self.item(content), received),
        }
    }

    /// Returns one item of a batch as a message of its own.
    #[cfg(feature = "http")]
    pub(crate) fn item(&self, content: &[u8]) -> Message {
        let kind = match self {
            Self::CloudEvents(_) => STRUCTURED,
            Self::Fields(_) => "application/json",
        };
        Message::new(content).with("content-type", kind)
    }
}
