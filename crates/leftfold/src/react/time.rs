//! Arithmetic on times that never overflows.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Returns a time that is this much later, or the latest possible time on overflow.
pub(crate) fn later(time: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by).ok().and_then(|by| time.checked_add(by).ok()).unwrap_or(Timestamp::MAX)
}

/// Returns the duration until a time, or zero if it has passed.
pub(crate) fn until(time: Timestamp, now: Timestamp) -> Duration {
    time.duration_since(now).try_into().unwrap_or_default()
}
