//! The names of streams, events, event types and documents.

use std::fmt;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use crate::error::Invalid;

/// The longest stream id, event id, event type or document id, in bytes.
pub const MAX_NAME_BYTES: usize = 255;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        ///
        /// 1 to 255 bytes of text without control characters.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "CompactString", into = "CompactString")]
        pub struct $name(CompactString);

        impl $name {
            /// Validates the text and makes it a name.
            pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
                let text = text.as_ref();
                check_name($what, text)?;
                Ok(Self(CompactString::from(text)))
            }

            /// Restores a name from a store, which validated it when it was written.
            pub fn stored(text: &str) -> Self {
                Self(CompactString::from(text))
            }

            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self.as_str(), f)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<CompactString> for $name {
            type Error = Invalid;

            fn try_from(text: CompactString) -> Result<Self, Invalid> {
                check_name($what, &text)?;
                Ok(Self(text))
            }
        }

        impl From<$name> for CompactString {
            fn from(name: $name) -> Self {
                name.0
            }
        }
    };
}

name!(
    /// The name of a stream: the events of one aggregate.
    StreamId,
    "stream id"
);
name!(
    /// The id that identifies an event, and tells a repeated append from a new one.
    EventId,
    "event id"
);
name!(
    /// An event's type, such as `product-item-added`.
    EventKind,
    "event type"
);
name!(
    /// The id of a document in its collection.
    DocumentId,
    "document id"
);

impl From<&StreamId> for DocumentId {
    fn from(stream: &StreamId) -> Self {
        Self(stream.0.clone())
    }
}

fn check_name(what: &'static str, text: &str) -> Result<(), Invalid> {
    let fault = if text.is_empty() {
        "it is empty".to_owned()
    } else if text.len() > MAX_NAME_BYTES {
        format!("it has {} bytes", text.len())
    } else if let Some(bad) = text.chars().find(|c| c.is_control()) {
        format!("it holds the control character {bad:?}")
    } else {
        return Ok(());
    };
    let expected = format!("1 to {MAX_NAME_BYTES} bytes of text without control characters; {fault}");
    Err(Invalid::new(what, text, expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert!(StreamId::new("a".repeat(255)).is_ok());
        let long = StreamId::new("a".repeat(256)).unwrap_err().to_string();
        assert!(long.contains("stream id") && long.contains("256 bytes"), "{long}");
        let nul = EventId::new("a\0b").unwrap_err().to_string();
        assert!(nul.contains("event id") && nul.contains("control character"), "{nul}");
        assert!(DocumentId::new("").unwrap_err().to_string().contains("it is empty"));
    }
}
