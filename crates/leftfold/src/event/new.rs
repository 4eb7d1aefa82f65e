//! An event to append.

use jiff::Timestamp;
use serde::Serialize;

use super::encode;
use super::names::{EventId, EventKind};
use crate::error::Invalid;
use crate::json::Json;

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
