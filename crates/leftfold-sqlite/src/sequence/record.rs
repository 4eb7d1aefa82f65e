//! The stored forms of waiting states, held events and conflicts.

use std::sync::Arc;

use leftfold::log::Entry;
use leftfold::sequence::{Conflict, Held, Waiting};
use leftfold::{EventId, EventKind, Json, Revision, StreamId};
use rusqlite::Row;

use crate::encoding::{json, number, time};
use crate::error::Failure;

/// Decodes a waiting state that starts at this column.
pub(super) fn waiting(row: &Row<'_>, column: usize) -> Result<Waiting, Failure> {
    let number = |at| number(row, column + at);
    Ok(Waiting {
        version: number(0)?,
        skipped: Revision(number(1)?),
        events: number(2)?,
        bytes: number(3)?,
        first: Revision(number(4)?),
        until: Revision(number(5)?),
        highest: Revision(number(6)?),
        since: time(row, column + 7)?,
        ask_at: time(row, column + 8)?,
        asked: row.get(column + 9)?,
        trouble: row.get(column + 10)?,
    })
}

/// Decodes an event that starts at this column: id, type, time, data, metadata.
fn entry(row: &Row<'_>, column: usize) -> Result<Arc<Entry>, Failure> {
    let text = |at| row.get_ref(column + at)?.as_str().map_err(Failure::from);
    Ok(Arc::new(Entry {
        id: EventId::stored(text(0)?),
        kind: EventKind::stored(text(1)?),
        time: time(row, column + 2)?,
        data: Json::stored(text(3)?),
        metadata: row.get_ref(column + 4)?.as_str_or_null()?.map(Json::stored),
    }))
}

/// Decodes a held event.
pub(super) fn held(row: &Row<'_>) -> Result<Held, Failure> {
    Ok(Held {
        stream: StreamId::stored(row.get_ref(0)?.as_str()?),
        revision: Revision(number(row, 1)?),
        previous: Revision(number(row, 2)?),
        since: time(row, 3)?,
        entry: entry(row, 4)?,
    })
}

/// Decodes a conflict.
pub(super) fn conflict(row: &Row<'_>) -> Result<Conflict, Failure> {
    let decided = match row.get_ref(9)?.as_str_or_null()? {
        Some(_) => Some(json(row, 9)?),
        None => None,
    };
    Ok(Conflict {
        stream: StreamId::stored(row.get_ref(0)?.as_str()?),
        revision: Revision(number(row, 1)?),
        why: json(row, 2)?,
        since: time(row, 3)?,
        entry: entry(row, 4)?,
        decided,
    })
}
