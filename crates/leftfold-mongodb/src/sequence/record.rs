//! The stored forms of waiting states, held events and conflicts.
//!
//! The `_id` of everything at a place in a stream is `{ stream, revision }`: it is unique and sorts
//! in stream order.

use std::sync::Arc;

use bson::raw::cstr;
use bson::{Document, RawBsonRef, RawDocument, RawDocumentBuf, doc, rawdoc};
use leftfold::sequence::{Conflict, Held, Waiting};
use leftfold::{Revision, StreamId};

use crate::encoding::{json, signed, text, time};
use crate::error::Failure;
use crate::log::{append_entry, entry};

/// Returns the key of an event's place in its stream.
pub(super) fn key(stream: &StreamId, revision: Revision) -> Document {
    doc! { "stream": stream.as_str(), "revision": signed(revision.0) }
}

/// Returns the key of a conflict: its place, and an id that distinguishes conflicts at one place.
pub(super) fn key_of_conflict(conflict: &Conflict) -> Document {
    let mut key = key(&conflict.stream, conflict.revision);
    key.insert("conflict", conflict.id());
    key
}

/// Reads a number of a document.
pub(super) fn number(stored: &RawDocument, field: &str) -> Result<u64, Failure> {
    Ok(stored.get_i64(field)?.unsigned_abs())
}

/// Encodes the waiting state of a stream.
pub(super) fn encode_waiting(stream: &StreamId, waiting: &Waiting) -> RawDocumentBuf {
    let Waiting { version, skipped, events, bytes, first, until, highest, since, ask_at, asked, trouble } =
        waiting;
    let mut document = rawdoc! {
        "_id": stream.as_str(),
        "version": signed(*version),
        "skipped": signed(skipped.0),
        "events": signed(*events),
        "bytes": signed(*bytes),
        "first": signed(first.0),
        "until": signed(until.0),
        "highest": signed(highest.0),
        "since": since.as_microsecond(),
        "ask_at": ask_at.as_microsecond(),
        "asked": i64::from(*asked),
    };
    if let Some(trouble) = trouble {
        document.append(cstr!("trouble"), trouble.as_str());
    }
    document
}

/// Decodes a stream and its waiting state.
pub(super) fn waiting(stored: &RawDocument) -> Result<(StreamId, Waiting), Failure> {
    let waiting = Waiting {
        version: number(stored, "version")?,
        skipped: Revision(number(stored, "skipped")?),
        events: number(stored, "events")?,
        bytes: number(stored, "bytes")?,
        first: Revision(number(stored, "first")?),
        until: Revision(number(stored, "until")?),
        highest: Revision(number(stored, "highest")?),
        since: time(stored.get_i64("since")?)?,
        ask_at: time(stored.get_i64("ask_at")?)?,
        asked: u32::try_from(stored.get_i64("asked")?).unwrap_or(u32::MAX),
        trouble: stored.get("trouble")?.and_then(RawBsonRef::as_str).map(str::to_owned),
    };
    Ok((StreamId::stored(stored.get_str("_id")?), waiting))
}

/// Encodes a held event.
pub(super) fn encode_held(held: &Held) -> RawDocumentBuf {
    let mut document = rawdoc! {
        "_id": { "stream": held.stream.as_str(), "revision": signed(held.revision.0) },
        "previous": signed(held.previous.0),
        "since": held.since.as_microsecond(),
    };
    append_entry(&mut document, &held.entry);
    document
}

/// Decodes a held event.
pub(super) fn held(stored: &RawDocument) -> Result<Held, Failure> {
    let place = stored.get_document("_id")?;
    Ok(Held {
        stream: StreamId::stored(place.get_str("stream")?),
        revision: Revision(number(place, "revision")?),
        previous: Revision(number(stored, "previous")?),
        since: time(stored.get_i64("since")?)?,
        entry: Arc::new(entry(stored)?),
    })
}

/// Encodes a conflict.
pub(super) fn encode_conflict(conflict: &Conflict) -> Result<RawDocumentBuf, Failure> {
    let mut document = rawdoc! {
        "_id": RawDocumentBuf::try_from(&key_of_conflict(conflict))?,
        "open": true,
        "why": text(&conflict.why)?,
        "since": conflict.since.as_microsecond(),
    };
    append_entry(&mut document, &conflict.entry);
    Ok(document)
}

/// Decodes a conflict.
pub(super) fn conflict(stored: &RawDocument) -> Result<Conflict, Failure> {
    let place = stored.get_document("_id")?;
    Ok(Conflict {
        stream: StreamId::stored(place.get_str("stream")?),
        revision: Revision(number(place, "revision")?),
        why: json(stored.get_str("why")?)?,
        since: time(stored.get_i64("since")?)?,
        entry: Arc::new(entry(stored)?),
        decided: stored.get("decided")?.and_then(RawBsonRef::as_str).map(json).transpose()?,
    })
}
