//! Numbers and times. BSON's numbers are signed.

use jiff::Timestamp;

use crate::error::Failure;

/// Converts a number for storage. It was checked on arrival, so it always fits.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a number for the limit of a query. MongoDB treats 0 as no limit.
pub(crate) fn limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}

/// Decodes a time in microseconds.
pub(crate) fn time(micros: i64) -> Result<Timestamp, Failure> {
    Timestamp::from_microsecond(micros).map_err(|error| Failure::damaged(error.to_string()))
}
