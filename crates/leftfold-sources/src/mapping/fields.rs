//! A mapping for JSON of any shape: the place of each part of the event in a message.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use leftfold::log::Entry;
use leftfold::{Delivery, EventId, EventKind, Invalid, Json, StreamId};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::raw::{Data, Pointer, json, revision, scalar, time, to_the_microsecond};
use crate::message::Message;

/// The place of a part of an event.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// An attribute: a header, `key` or `subject`, in lower case.
    Attribute(String),
    /// A field of the content, which is JSON.
    Field(Pointer),
    /// A fixed value.
    Value(String),
}

impl Place {
    /// Returns the place of an attribute: a header, or the broker's `key` or `subject`.
    pub fn attribute(name: &str) -> Self {
        Self::Attribute(name.to_lowercase())
    }

    /// Returns the place of a field in the content, by a JSON pointer: `/order/id`.
    pub fn field(pointer: &str) -> Result<Self, Invalid> {
        Pointer::new(pointer).map(Self::Field)
    }

    /// Returns a fixed value.
    pub fn value(text: impl Into<String>) -> Self {
        Self::Value(text.into())
    }
}

/// A mapping for messages of any shape: the place of each part of an event.
///
/// ```
/// use leftfold::Revision;
/// use leftfold_sources::{Mapping, Message, Place};
///
/// let mapping: Mapping = Mapping::fields(Place::attribute("key"))
///     .revision(Place::field("/version")?)
///     .kind(Place::field("/what")?)
///     .offset(1) // this feed's first version is 0
///     .into();
/// let message = Message::new(r#"{"version":0,"what":"opened"}"#).with("key", "cart-42");
/// let delivery = mapping.map(&message, "2026-11-16T08:00:00Z".parse()?)?;
/// assert_eq!(delivery.revision, Some(Revision(1)));
/// assert_eq!(delivery.entry.id.as_str(), "cart-42@1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// As configuration:
///
/// ```toml
/// [mapping]
/// format = "fields"
/// stream = { attribute = "key" }
/// revision = { field = "/version" }
/// type = { field = "/what" }
/// offset = 1
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FieldMapping {
    stream: Place,
    #[serde(default)]
    stream_prefix: String,
    revision: Option<Place>,
    previous: Option<Place>,
    id: Option<Place>,
    #[serde(rename = "type")]
    kind: Option<Place>,
    time: Option<Place>,
    data: Option<Pointer>,
    #[serde(default)]
    metadata: Vec<String>,
    #[serde(default)]
    offset: i64,
}

impl FieldMapping {
    /// Creates a mapping that finds the stream at this place. The methods describe the other
    /// defaults.
    pub fn new(stream: Place) -> Self {
        Self {
            stream,
            stream_prefix: String::new(),
            revision: None,
            previous: None,
            id: None,
            kind: None,
            time: None,
            data: None,
            metadata: Vec::new(),
            offset: 0,
        }
    }

    /// Sets a prefix for the name of each stream, such as `order-`. The default is none.
    #[must_use]
    pub fn stream_prefix(self, prefix: impl Into<String>) -> Self {
        Self { stream_prefix: prefix.into(), ..self }
    }

    /// Sets the place of the revision. Without it, only the policy
    /// [`Arrival`](leftfold::Policy::Arrival) accepts the events.
    #[must_use]
    pub fn revision(self, place: Place) -> Self {
        Self { revision: Some(place), ..self }
    }

    /// Sets the place of the previous revision in this feed. An event without one follows the
    /// revision directly below its own.
    #[must_use]
    pub fn previous(self, place: Place) -> Self {
        Self { previous: Some(place), ..self }
    }

    /// Sets the place of the id. Without it, the id is stream and revision: `cart-42@3`.
    #[must_use]
    pub fn id(self, place: Place) -> Self {
        Self { id: Some(place), ..self }
    }

    /// Sets the place of the type. Without it, the type is at `/type` in the content.
    #[must_use]
    pub fn kind(self, place: Place) -> Self {
        Self { kind: Some(place), ..self }
    }

    /// Sets the place of the time: RFC 3339, or milliseconds since 1970. Without it, the time is
    /// when the message was received.
    #[must_use]
    pub fn time(self, place: Place) -> Self {
        Self { time: Some(place), ..self }
    }

    /// Sets the part of the content that is the data. Without it, the data is the whole content.
    #[must_use]
    pub fn data(self, pointer: Pointer) -> Self {
        Self { data: Some(pointer), ..self }
    }

    /// Sets the attributes to keep as metadata, if present. The default is none.
    #[must_use]
    pub fn metadata(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { metadata: names.into_iter().map(Into::into).collect(), ..self }
    }

    /// Sets the number to add to revisions: 1 for a feed whose first one is 0, and whose first
    /// `previous`, if any, is -1.
    #[must_use]
    pub fn offset(self, offset: i64) -> Self {
        Self { offset, ..self }
    }

    pub(super) fn map(&self, message: &Message, received: Timestamp) -> Result<Delivery, Invalid> {
        let found = Found { message, root: json(&message.content) };
        let stream = format!("{}{}", self.stream_prefix, found.needed("stream", &self.stream)?);
        let number = |what, place: &Option<Place>| match place {
            Some(place) => {
                found.text(what, place)?.map(|text| revision(what, &text, self.offset)).transpose()
            }
            None => Ok(None),
        };
        let revision = number("revision", &self.revision)?;
        let previous = number("previous revision", &self.previous)?;
        let id = match (&self.id, revision) {
            (Some(place), _) => found.needed("event id", place)?,
            (None, Some(revision)) => format!("{stream}@{revision}"),
            (None, None) => {
                let expected =
                    "a place for it in the mapping, because there is no revision to derive it from";
                return Err(Invalid::new("event id", "", expected));
            }
        };
        let kind = match &self.kind {
            Some(place) => found.needed("event type", place)?,
            None => found.needed("event type", &Place::field("/type")?)?,
        };
        let at = match &self.time {
            Some(place) => found.text("time", place)?.map(|text| time_or_millis(&text)).transpose()?,
            None => None,
        };
        let (data, metadata) = (self.data_of(&found)?, self.metadata_of(message)?);
        let time = at.unwrap_or_else(|| to_the_microsecond(received).unwrap_or(received));
        let entry = Entry { id: EventId::new(id)?, kind: EventKind::new(kind)?, time, data, metadata };
        Ok(Delivery { stream: StreamId::new(stream)?, revision, previous, entry: Arc::new(entry) })
    }

    /// Returns whether a part of the event is in this attribute.
    pub(super) fn reads(&self, attribute: &str) -> bool {
        let parts = [&self.revision, &self.previous, &self.id, &self.kind, &self.time];
        let mut places = parts.into_iter().flatten().chain([&self.stream]);
        places.any(|place| matches!(place, Place::Attribute(name) if name == attribute))
    }

    fn data_of(&self, found: &Found<'_>) -> Result<Json, Invalid> {
        match &self.data {
            None => Ok(Data::of(found.message)?.json),
            Some(pointer) => {
                let data = pointer.find(found.root.clone()?)?;
                Ok(data.map_or_else(Data::none, Data::raw).json)
            }
        }
    }

    fn metadata_of(&self, message: &Message) -> Result<Option<Json>, Invalid> {
        let kept = self.metadata.iter().filter_map(|name| Some((&name[..], message.attribute(name)?)));
        let kept: BTreeMap<&str, &str> = kept.collect();
        if kept.is_empty() { Ok(None) } else { Json::of(&kept).map(Some) }
    }
}

/// A message, and its content as JSON if it is valid.
struct Found<'a> {
    message: &'a Message,
    root: Result<&'a RawValue, Invalid>,
}

impl Found<'_> {
    /// Returns the value at a place, if there is one.
    fn text(&self, what: &'static str, place: &Place) -> Result<Option<String>, Invalid> {
        match place {
            Place::Attribute(name) => Ok(self.message.attribute(name).map(ToOwned::to_owned)),
            Place::Value(value) => Ok(Some(value.clone())),
            Place::Field(pointer) => match pointer.find(self.root.clone()?)? {
                Some(raw) => scalar(what, raw),
                None => Ok(None),
            },
        }
    }

    fn needed(&self, what: &'static str, place: &Place) -> Result<String, Invalid> {
        self.text(what, place)?.ok_or_else(|| {
            let expected = match place {
                Place::Attribute(name) => format!("a value in the attribute {name:?}, which is missing"),
                Place::Field(pointer) => format!("a value at {pointer} in the content, which is missing"),
                Place::Value(_) => "a value".to_owned(),
            };
            Invalid::new(what, "", expected)
        })
    }
}

fn time_or_millis(text: &str) -> Result<Timestamp, Invalid> {
    match text.parse::<i64>() {
        Ok(millis) => Timestamp::from_millisecond(millis)
            .map_err(|error| Invalid::new("time", text, format!("milliseconds since 1970: {error}"))),
        Err(_) => time(text),
    }
}
