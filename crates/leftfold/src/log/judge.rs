//! The decision about an append, the same for all logs.

use super::append::{AppendError, Expected};
use super::entry::Entry;
use crate::event::{Bookmark, Event, Revision, StreamId};

/// Decides about an append from what the log has stored. Pure, so that all logs decide alike.
///
/// `stored` has, for each entry, the event with its id, if any; `current` is the stream's revision.
/// `Ok(Some(bookmark))` means that the append was done before and ended there. `Ok(None)` means
/// that it may proceed.
pub fn judge_append(
    stream: &StreamId,
    expected: Expected,
    entries: &[Entry],
    stored: &[Option<Event>],
    current: Revision,
) -> Result<Option<Bookmark>, AppendError> {
    let found = entries.iter().zip(stored).filter_map(|(entry, stored)| Some((entry, stored.as_ref()?)));
    let mut first = None;
    for (entry, event) in found {
        if event.stream != *stream || !entry.is(event) {
            return Err(AppendError::IdTaken { id: entry.id.clone(), stored: event.bookmark() });
        }
        first.get_or_insert(event);
    }
    if let Some(first) = first {
        let in_a_row = stored
            .iter()
            .zip(first.revision.0..)
            .all(|(stored, revision)| stored.as_ref().is_some_and(|event| event.revision.0 == revision));
        return match stored.last() {
            Some(Some(last)) if in_a_row => Ok(Some(last.bookmark())),
            _ => Err(AppendError::PartlyThere { id: first.id.clone(), stored: first.bookmark() }),
        };
    }
    match expected {
        Expected::Revision(expected) if expected != current => {
            Err(AppendError::WrongRevision { stream: stream.clone(), expected, actual: current })
        }
        _ => Ok(None),
    }
}
