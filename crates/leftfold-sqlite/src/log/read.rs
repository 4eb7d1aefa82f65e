//! Pages of partitions and of streams.

use leftfold::Event;
use leftfold::log::Limit;

use super::record::event;
use crate::error::Failure;

pub(super) const READ: &str = "SELECT position, stream, revision, id, kind, time, data, metadata \
    FROM leftfold_events WHERE position > ?1 AND position <= ?2 ORDER BY position LIMIT ?3";

/// Selects the event with an id.
pub(crate) const BY_ID: &str = "SELECT position, stream, revision, id, kind, time, data, metadata \
    FROM leftfold_events WHERE id = ?1";
pub(super) const READ_STREAM: &str = "SELECT position, stream, revision, id, kind, time, data, metadata \
    FROM leftfold_events WHERE stream = ?1 AND revision > ?2 ORDER BY revision LIMIT ?3";

/// Returns the number of rows to read: one more than wanted shows whether there are more.
pub(super) fn rows(limit: Limit) -> i64 {
    i64::try_from(limit.events.max(1)).unwrap_or(i64::MAX).saturating_add(1)
}

/// Reads events up to the limit, and returns whether the limit ended the page.
pub(super) fn take(mut rows: rusqlite::Rows<'_>, limit: Limit) -> Result<(Vec<Event>, bool), Failure> {
    let mut events = Vec::new();
    let mut bytes = 0_usize;
    while let Some(row) = rows.next()? {
        let text = |column| row.get_ref(column)?.as_str_or_null().map_err(Failure::from);
        bytes += text(6)?.map_or(0, str::len) + text(7)?.map_or(0, str::len);
        if !events.is_empty() && (events.len() >= limit.events || bytes > limit.bytes) {
            return Ok((events, true));
        }
        events.push(event(row)?);
    }
    Ok((events, false))
}
