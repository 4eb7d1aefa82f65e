//! Numbers and times. SQLite's numbers are signed.

use jiff::Timestamp;
use rusqlite::Row;

use crate::error::Failure;

/// Converts a number for storage. It was checked on arrival, so it always fits.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a number for `LIMIT`.
pub(crate) fn limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}

/// Decodes the number in a column.
pub(crate) fn number(row: &Row<'_>, column: usize) -> Result<u64, Failure> {
    Ok(row.get_ref(column)?.as_i64()?.unsigned_abs())
}

/// Decodes the microseconds in a column.
pub(crate) fn time(row: &Row<'_>, column: usize) -> Result<Timestamp, Failure> {
    let micros = row.get_ref(column)?.as_i64()?;
    Timestamp::from_microsecond(micros).map_err(|error| Failure::damaged(error.to_string()))
}
