//! Reads the log, and answers questions about it.

use std::collections::BTreeSet;

use leftfold::log::Limit;
use leftfold::{Bookmark, DocumentId, Event, EventId, Json, Log, Partition, Result};

use super::state::{Checker, State, Step};
use crate::notes::{BY_CONTENT, BY_STREAM};

impl Checker {
    /// Returns whether an event with this id and content is in the log.
    pub async fn is_logged(&self, store: &impl Log, id: &EventId, data: &Json) -> Result<bool> {
        self.read_log(store).await?;
        Ok(self.state().ids.get(id) == Some(data))
    }

    /// Returns whether a document that has folded the event of a bookmark must list it. The event
    /// must belong to the document, and no event may clear it.
    pub async fn must_list(
        &self,
        store: &impl Log,
        projection: &'static str,
        document: &str,
        bookmark: &Bookmark,
    ) -> Result<bool> {
        self.read_log(store).await?;
        let (state, id) = (self.state(), DocumentId::new(document)?);
        let steps = state.routed.get(&(projection, id)).map(Vec::as_slice).unwrap_or_default();
        let own = name(&bookmark.stream, bookmark.revision);
        Ok(steps.iter().any(|step| step.name == own) && steps.iter().all(|step| !step.clears))
    }

    pub(super) async fn read_log(&self, log: &impl Log) -> Result<()> {
        for partition in (0..log.partitions()).map(Partition) {
            let after = self.state().read_up_to.position(partition);
            let page = log.read(partition, after, Limit { events: usize::MAX, bytes: usize::MAX }).await?;
            let mut state = self.state();
            // Another task may have read the same events meanwhile.
            let after = state.read_up_to.position(partition);
            state.read_up_to.advance(&partition.into(), page.through.0);
            for event in page.events.into_iter().filter(|event| event.position > after) {
                state.add_event(&event);
            }
        }
        Ok(())
    }
}

impl State {
    fn add_event(&mut self, event: &Event) {
        if self.ids.insert(event.id.clone(), event.data.clone()).is_some() {
            self.violations.push(format!("I6: event {} is in the log twice", event.id));
        }
        self.bookmarks.insert(event.bookmark());
        let step = Step {
            stream: event.stream.to_string(),
            name: name(&event.stream, event.revision),
            partition: event.partition,
            position: event.position,
            clears: event.kind.as_str() == "cleared",
        };
        for projection in [BY_STREAM, BY_CONTENT] {
            let ids = documents_of(event, projection);
            for id in &ids {
                self.routed.entry((projection, id.clone())).or_default().push(step.clone());
            }
            self.passed.entry((projection, event.partition)).or_default().push((step.clone(), ids));
        }
    }
}

/// Returns the documents that an event belongs to, read from its JSON by hand. Ignores types that
/// the projections do not handle.
fn documents_of(event: &Event, projection: &str) -> Vec<DocumentId> {
    if !matches!(event.kind.as_str(), "noted" | "cleared" | "poison" | "flaky") {
        return Vec::new();
    }
    let Ok(data) = serde_json::from_str::<serde_json::Value>(event.data.as_str()) else { return Vec::new() };
    let to = data.get("to").or_else(|| data.get("garbled")).and_then(serde_json::Value::as_array);
    let ids: BTreeSet<&str> = match projection {
        BY_STREAM => BTreeSet::from([event.stream.as_str()]),
        _ => to.into_iter().flatten().filter_map(serde_json::Value::as_str).collect(),
    };
    ids.into_iter().filter_map(|id| DocumentId::new(id).ok()).collect()
}

/// Returns the name under which a document lists an event.
fn name(stream: &impl std::fmt::Display, revision: impl std::fmt::Display) -> String {
    format!("{stream}@{revision}")
}
