//! JSON of any shape: where in a message each part of the event is.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use leftfold::log::Entry;
use leftfold::{Delivery, EventId, EventKind, Invalid, Json, StreamId};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::raw::{Data, Pointer, json, revision, scalar, time, to_the_microsecond};
use crate::message::Message;

/// Where a part of an event is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// Beside the content: a header, `key`, `subject`. In lower case.
    Attribute(String),
    /// In the content, which is JSON.
    Field(Pointer),
    /// Nowhere: it is always this.
    Value(String),
}

impl Place {
    /// Beside the content: a header, or what the broker calls `key` or `subject`.
    pub fn attribute(name: &str) -> Self {
        Self::Attribute(name.to_lowercase())
    }

    /// In the content, at a JSON pointer: `/order/id`.
    pub fn field(pointer: &str) -> Result<Self, Invalid> {
        Pointer::new(pointer).map(Self::Field)
    }

    /// Always this.
    pub fn value(text: impl Into<String>) -> Self {
        Self::Value(text.into())
    }
}

/// Where each part of an event is in a message of any shape.
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
pub struct Fields {
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

impl Fields {
    /// A mapping that finds the stream there. All else is as its method says.
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

    /// What is put before the name of each stream: `order-`. Nothing by default.
    #[must_use]
    pub fn stream_prefix(self, prefix: impl Into<String>) -> Self {
        Self { stream_prefix: prefix.into(), ..self }
    }

    /// Where the revision is. Without, only the policy [`Arrival`](leftfold::Policy::Arrival) takes the events.
    #[must_use]
    pub fn revision(self, place: Place) -> Self {
        Self { revision: Some(place), ..self }
    }

    /// Where the revision before is, as this feed has it. An event that has nothing there follows the one directly below.
    #[must_use]
    pub fn previous(self, place: Place) -> Self {
        Self { previous: Some(place), ..self }
    }

    /// Where the id is. Without, it is stream and revision: `cart-42@3`.
    #[must_use]
    pub fn id(self, place: Place) -> Self {
        Self { id: Some(place), ..self }
    }

    /// Where the type is. Without, it is in the content at `/type`.
    #[must_use]
    pub fn kind(self, place: Place) -> Self {
        Self { kind: Some(place), ..self }
    }

    /// Where the time is: as RFC 3339 writes it, or in milliseconds since 1970. Without, it is when the message was received.
    #[must_use]
    pub fn time(self, place: Place) -> Self {
        Self { time: Some(place), ..self }
    }

    /// Which part of the content is the data. Without, it is the whole.
    #[must_use]
    pub fn data(self, pointer: Pointer) -> Self {
        Self { data: Some(pointer), ..self }
    }

    /// Attributes to keep as metadata, where they are there. None by default.
    #[must_use]
    pub fn metadata(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { metadata: names.into_iter().map(Into::into).collect(), ..self }
    }

    /// What is added to revisions: 1 for a feed whose first one is 0, and whose first `previous`, if it has them, is -1.
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
                let expected = "one, since there is no revision to make it of: name its place in the mapping";
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

/// A message, and its content as JSON if it is.
struct Found<'a> {
    message: &'a Message,
    root: Result<&'a RawValue, Invalid>,
}

impl Found<'_> {
    /// What stands at a place, if anything does.
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
                Place::Attribute(name) => format!("one in the attribute {name:?}, which is not there"),
                Place::Field(pointer) => format!("one in the content at {pointer}, where there is none"),
                Place::Value(_) => "one".to_owned(),
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
