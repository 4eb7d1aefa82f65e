//! The stored form of events: one document each, with the partition and the position as its `_id`.

use bson::raw::cstr;
use bson::{RawDocument, RawDocumentBuf};
use leftfold::log::Entry;
use leftfold::{Event, EventId, EventKind, Invalid, Json, Partition, Position, Revision, StreamId};

use crate::encoding::time;
use crate::error::Failure;

const POSITION_BITS: u32 = 48;
pub(super) const LAST_POSITION: i64 = (1 << POSITION_BITS) - 1;

/// Returns the `_id` of the event at a position.
pub(crate) fn place_of(partition: Partition, position: i64) -> i64 {
    i64::from(partition.0) << POSITION_BITS | position
}

/// Returns the `_id` of an event.
pub(super) fn place(event: &Event) -> i64 {
    place_of(event.partition, i64::try_from(event.position.0).unwrap_or(LAST_POSITION))
}

/// Returns whether the position still fits into a partition.
pub(crate) fn has_room(last: i64) -> bool {
    last <= LAST_POSITION
}

/// Converts a number to BSON, where numbers are signed.
pub(crate) fn storable(what: &'static str, number: u64) -> Result<i64, Invalid> {
    i64::try_from(number)
        .map_err(|_| Invalid::new(what, &number.to_string(), format!("a number up to {}", i64::MAX)))
}

/// Encodes an event for storage.
pub(crate) fn encode(place: i64, stream: &StreamId, revision: i64, entry: &Entry) -> RawDocumentBuf {
    let mut event = bson::rawdoc! { "_id": place, "stream": stream.as_str(), "revision": revision };
    append_entry(&mut event, entry);
    event
}

/// Appends the fields of an event. BSON dates count milliseconds, so a separate field holds the
/// remaining microseconds.
pub(crate) fn append_entry(document: &mut RawDocumentBuf, entry: &Entry) {
    let micros = entry.time.as_microsecond();
    document.append(cstr!("id"), entry.id.as_str());
    document.append(cstr!("type"), entry.kind.as_str());
    document.append(cstr!("time"), bson::DateTime::from_millis(micros.div_euclid(1_000)));
    document.append(cstr!("data"), entry.data.as_str());
    let rest = i32::try_from(micros.rem_euclid(1_000)).unwrap_or(0);
    if rest > 0 {
        document.append(cstr!("micros"), rest);
    }
    if let Some(metadata) = &entry.metadata {
        document.append(cstr!("metadata"), metadata.as_str());
    }
}

fn missing() -> Failure {
    Failure::damaged("an event lacks a field")
}

/// The fields of a stored event, in the log or elsewhere.
#[derive(Default)]
struct Fields<'a> {
    place: Option<i64>,
    stream: Option<&'a str>,
    revision: Option<i64>,
    id: Option<&'a str>,
    kind: Option<&'a str>,
    micros: i64,
    data: Option<&'a str>,
    metadata: Option<&'a str>,
}

fn fields(stored: &RawDocument) -> Result<Fields<'_>, Failure> {
    let mut fields = Fields::default();
    for element in stored {
        let (key, value) = element?;
        match key.as_str() {
            "_id" => fields.place = value.as_i64(),
            "stream" => fields.stream = value.as_str(),
            "revision" => fields.revision = value.as_i64(),
            "id" => fields.id = value.as_str(),
            "type" => fields.kind = value.as_str(),
            "time" => fields.micros += value.as_datetime().ok_or_else(missing)?.timestamp_millis() * 1_000,
            "micros" => fields.micros += i64::from(value.as_i32().ok_or_else(missing)?),
            "data" => fields.data = value.as_str(),
            "metadata" => fields.metadata = value.as_str(),
            _ => {}
        }
    }
    Ok(fields)
}

impl Fields<'_> {
    fn entry(&self) -> Result<Entry, Failure> {
        Ok(Entry {
            id: EventId::stored(self.id.ok_or_else(missing)?),
            kind: EventKind::stored(self.kind.ok_or_else(missing)?),
            time: time(self.micros)?,
            data: Json::stored(self.data.ok_or_else(missing)?),
            metadata: self.metadata.map(Json::stored),
        })
    }
}

/// Decodes the entry of a stored event.
pub(crate) fn entry(stored: &RawDocument) -> Result<Entry, Failure> {
    fields(stored)?.entry()
}

/// Decodes a stored event.
pub(crate) fn event(stored: &RawDocument) -> Result<Event, Failure> {
    let fields = fields(stored)?;
    let place = fields.place.ok_or_else(missing)?;
    let partition = u16::try_from(place >> POSITION_BITS);
    let Entry { id, kind, time, data, metadata } = fields.entry()?;
    Ok(Event {
        id,
        stream: StreamId::stored(fields.stream.ok_or_else(missing)?),
        revision: Revision(fields.revision.ok_or_else(missing)?.unsigned_abs()),
        kind,
        time,
        data,
        metadata,
        partition: Partition(partition.map_err(|error| Failure::damaged(error.to_string()))?),
        position: Position((place & LAST_POSITION).unsigned_abs()),
    })
}
