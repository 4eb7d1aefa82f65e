//! The event that a task of a stream handles next.

use crate::error::{Error, Kind, Result};
use crate::event::{Event, Revision, StreamId};
use crate::log::Limit;
use crate::react::define::Definition;
use crate::react::store::ReactionStore;
use crate::react::task::Task;

/// The maximum size of a page of the log.
const PAGE: Limit = Limit { events: 1_000, bytes: 4 << 20 };

/// Returns the next wanted event of a task's stream, or `None` for reactions to documents.
pub(super) async fn next_event<S: ReactionStore>(
    store: &S,
    definition: &Definition,
    task: &Task,
) -> Result<Option<Event>> {
    let (Some(wanted), Some(cursor)) = (&definition.events, task.cursor) else { return Ok(None) };
    let stream = StreamId::new(&task.key.document)?;
    let mut after = Revision(cursor.handled);
    loop {
        let page = store.read_stream(&stream, after, PAGE).await?;
        let Some(last) = page.last().map(|event| event.revision) else {
            let message = format!(
                "reading the planned event after revision {after} of stream {stream}: it is missing; \
                 the run is repeated"
            );
            return Err(Error::new(Kind::Unavailable, message));
        };
        if let Some(event) = page.into_iter().find(|event| wanted.kinds.contains(&event.kind)) {
            return Ok(Some(event));
        }
        after = last;
    }
}
