//! The stored form of events: one row each, with the partition and the position as its number.

use leftfold::{Event, EventId, EventKind, Invalid, Json, Partition, Position, Revision, StreamId};
use rusqlite::Row;

use crate::error::Failure;

const POSITION_BITS: u32 = 48;
pub(crate) const LAST_POSITION: i64 = (1 << POSITION_BITS) - 1;

/// Returns the number of the row at a position.
pub(crate) fn row_of(partition: Partition, position: i64) -> i64 {
    i64::from(partition.0) << POSITION_BITS | position
}

/// Returns the position of a row.
pub(crate) fn position_of(row: i64) -> u64 {
    (row & LAST_POSITION).unsigned_abs()
}

/// Converts a number to SQLite, where numbers are signed.
pub(crate) fn storable(what: &'static str, number: u64) -> Result<i64, Invalid> {
    i64::try_from(number)
        .map_err(|_| Invalid::new(what, &number.to_string(), format!("a number up to {}", i64::MAX)))
}

/// Decodes a row with all columns of the log.
pub(crate) fn event(row: &Row<'_>) -> Result<Event, Failure> {
    let text = |column| row.get_ref(column)?.as_str().map_err(Failure::from);
    let number = |column| row.get_ref(column)?.as_i64().map_err(Failure::from);
    let place = number(0)?;
    let time = jiff::Timestamp::from_microsecond(number(5)?);
    let partition = u16::try_from(place >> POSITION_BITS);
    Ok(Event {
        id: EventId::stored(text(3)?),
        stream: StreamId::stored(text(1)?),
        revision: Revision(number(2)?.unsigned_abs()),
        kind: EventKind::stored(text(4)?),
        time: time.map_err(|error| Failure::damaged(error.to_string()))?,
        data: Json::stored(text(6)?),
        metadata: row.get_ref(7)?.as_str_or_null()?.map(Json::stored),
        partition: Partition(partition.map_err(|error| Failure::damaged(error.to_string()))?),
        position: Position(position_of(place)),
    })
}
