//! Events, the streams they belong to, and the numbers that order them.

use std::fmt;
use std::str::FromStr;

use compact_str::CompactString;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::encode;
use crate::error::Invalid;
use crate::json::Json;

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

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number!(
    /// The place of an event in its stream: 1, 2, 3 …; 0 means no event yet.
    Revision(u64)
);
number!(
    /// The place of an event in its partition of the log: 1 or more; 0 is before the first event.
    Position(u64)
);
number!(
    /// A part of the log with its own total order. A stream lives in one partition.
    Partition(u16)
);

impl Partition {
    /// Returns the partition of a stream, out of `count`. It never changes: it is derived from the
    /// 64-bit FNV-1a hash of the id.
    pub fn of(stream: &StreamId, count: u16) -> Self {
        if count <= 1 {
            return Self(0);
        }
        let hash = stream.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(u16::try_from(hash % u64::from(count)).unwrap_or_default())
    }
}

/// An event in the log. `D` is its data: [`Json`] as stored, or the type a projection decodes it
/// into.
#[derive(Clone, Debug, PartialEq)]
pub struct Event<D = Json> {
    /// The unique id of the event.
    pub id: EventId,
    /// The stream it belongs to.
    pub stream: StreamId,
    /// The place of the event in the stream.
    pub revision: Revision,
    /// The type of the event.
    pub kind: EventKind,
    /// The time when it happened, according to its producer, to the microsecond. Never used to
    /// order events.
    pub time: Timestamp,
    /// The event's data.
    pub data: D,
    /// The metadata of the producer: a JSON object.
    pub metadata: Option<Json>,
    /// The partition of the log.
    pub partition: Partition,
    /// The place of the event in the partition.
    pub position: Position,
}

impl<D> Event<D> {
    /// Returns the bookmark of this event, as its append returned it.
    pub fn bookmark(&self) -> Bookmark {
        Bookmark {
            stream: self.stream.clone(),
            revision: self.revision,
            partition: self.partition,
            position: self.position,
        }
    }

    /// Returns the same event with other data.
    pub(crate) fn with_data<E>(self, data: E) -> Event<E> {
        Event {
            id: self.id,
            stream: self.stream,
            revision: self.revision,
            kind: self.kind,
            time: self.time,
            data,
            metadata: self.metadata,
            partition: self.partition,
            position: self.position,
        }
    }
}

/// An event to append.
///
/// Created from any serde enum or struct with [`NewEvent::encode`], or from its parts:
///
/// ```
/// use leftfold::{Json, NewEvent};
/// #[derive(serde::Serialize)]
/// #[serde(rename_all = "kebab-case")]
/// enum Cart {
///     ItemAdded { product: String, quantity: u32 },
/// }
///
/// let added = NewEvent::encode(&Cart::ItemAdded { product: "shoes".into(), quantity: 2 })?;
/// let same = NewEvent::new("item-added", Json::parse(r#"{"product":"shoes","quantity":2}"#)?)?;
/// assert_eq!(added, same);
/// # Ok::<(), leftfold::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// The id of the event. Set it to make the append idempotent; without an id each append creates
    /// a new event.
    pub id: Option<EventId>,
    /// The type of the event.
    pub kind: EventKind,
    /// The time when it happened; by default now.
    pub time: Option<Timestamp>,
    /// The event's data.
    pub data: Json,
    /// The metadata: a JSON object.
    pub metadata: Option<Json>,
}

impl NewEvent {
    /// Creates an event of this type with this data.
    pub fn new(kind: impl AsRef<str>, data: Json) -> Result<Self, Invalid> {
        Ok(Self { id: None, kind: EventKind::new(kind)?, time: None, data, metadata: None })
    }

    /// Takes the type from an enum's variant or a struct's name, as serde sees them, and the data
    /// from its content.
    pub fn encode(event: &impl Serialize) -> Result<Self, Invalid> {
        let (kind, data) = encode::encode(event)?;
        Self::new(kind, data)
    }

    /// Sets the event's id.
    pub fn with_id(mut self, id: impl AsRef<str>) -> Result<Self, Invalid> {
        self.id = Some(EventId::new(id)?);
        Ok(self)
    }

    /// Sets the time when it happened.
    #[must_use]
    pub fn at(mut self, time: Timestamp) -> Self {
        self.time = Some(time);
        self
    }

    /// Sets the metadata, which must serialize to a JSON object.
    pub fn with_metadata(mut self, metadata: &impl Serialize) -> Result<Self, Invalid> {
        let json = Json::of(metadata)?;
        if !json.as_str().starts_with('{') {
            return Err(Invalid::new("metadata", json.as_str(), "a JSON object"));
        }
        self.metadata = Some(json);
        Ok(self)
    }
}

/// The result of an append: the place of its last event. A read can wait for it.
///
/// Its text form, `partition:position:revision:stream`, is safe in URLs and headers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bookmark {
    /// The stream appended to.
    pub stream: StreamId,
    /// The revision of the stream after the append.
    pub revision: Revision,
    /// The partition of the stream.
    pub partition: Partition,
    /// The place of the last appended event in the partition.
    pub position: Position,
}

impl fmt::Display for Bookmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:{}", self.partition, self.position, self.revision, self.stream)
    }
}

impl FromStr for Bookmark {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid =
            || Invalid::new("bookmark", text, "partition:position:revision:stream, as an append returned it");
        let mut parts = text.splitn(4, ':');
        let mut next = || parts.next().ok_or_else(invalid);
        Ok(Self {
            partition: Partition(next()?.parse().map_err(|_| invalid())?),
            position: Position(next()?.parse().map_err(|_| invalid())?),
            revision: Revision(next()?.parse().map_err(|_| invalid())?),
            stream: StreamId::new(next()?)?,
        })
    }
}

/// Rounds a time down to microseconds, the precision of stored times.
pub(crate) fn to_the_microsecond(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_its_text() {
        let bookmark = Bookmark {
            stream: StreamId::new("cart:42").unwrap(),
            revision: Revision(3),
            partition: Partition(1),
            position: Position(99),
        };
        assert_eq!(bookmark.to_string(), "1:99:3:cart:42");
        assert_eq!(bookmark.to_string().parse::<Bookmark>().unwrap(), bookmark);
        for bad in ["", "1:2:3", "1:2:3:", "x:1:1:s", "70000:1:1:s", "0:-1:1:s"] {
            assert!(bad.parse::<Bookmark>().is_err(), "{bad:?} is no bookmark");
        }
    }

    #[test]
    fn names_are_checked() {
        assert!(StreamId::new("a".repeat(255)).is_ok());
        let long = StreamId::new("a".repeat(256)).unwrap_err().to_string();
        assert!(long.contains("stream id") && long.contains("256 bytes"), "{long}");
        let nul = EventId::new("a\0b").unwrap_err().to_string();
        assert!(nul.contains("event id") && nul.contains("control character"), "{nul}");
        assert!(DocumentId::new("").unwrap_err().to_string().contains("it is empty"));
    }

    /// Streams must stay in their partition for the life of a log, so these numbers never change.
    #[test]
    fn partitions_are_stable() {
        let of = |text| Partition::of(&StreamId::new(text).unwrap(), 16).0;
        assert_eq!(["cart-1", "cart-2", "cart-42", "ünïcode"].map(of), [5, 12, 12, 11]);
        assert_eq!(Partition::of(&StreamId::new("cart-1").unwrap(), 1), Partition(0));
    }
}
