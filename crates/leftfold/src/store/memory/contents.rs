//! Documents without events, in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Memory;
use crate::content::{
    ContentGuard, ContentWrite, Contents, Operated, Operation, OperationIds, Stored, Wrote,
};
use crate::env::{Env as _, System};
use crate::error::Result;
use crate::event::DocumentId;
use crate::react::{DocumentSource, ExternalCollection};

/// The guard and the operations of each document; the bodies are among the plain documents.
pub(super) type Kept = BTreeMap<(ExternalCollection, DocumentId), (ContentGuard, OperationIds)>;

impl super::State {
    fn content(&self, collection: &ExternalCollection, id: &DocumentId) -> Option<Stored> {
        let (guard, operations) = self.contents.get(&(collection.clone(), id.clone())).cloned()?;
        let body = self.document(&DocumentSource::External(collection.clone()), id)?;
        Some(Stored { id: id.clone(), body, guard, operations })
    }

    fn put_content(&mut self, collection: &ExternalCollection, stored: Stored) {
        let Stored { id, body, guard, operations } = stored;
        self.contents.insert((collection.clone(), id.clone()), (guard, operations));
        self.reacting.put_plain(collection, id, Some(body));
    }
}

impl Contents for Memory {
    async fn prepare_contents(&self, _: &ExternalCollection) -> Result<()> {
        Ok(())
    }

    async fn contents(&self, collection: &ExternalCollection, ids: Vec<DocumentId>) -> Result<Vec<Stored>> {
        let state = self.state();
        Ok(ids.iter().filter_map(|id| state.content(collection, id)).collect())
    }

    async fn write_contents(
        &self,
        collection: &ExternalCollection,
        writes: Arc<[ContentWrite]>,
    ) -> Result<Vec<Wrote>> {
        let mut wrote = Vec::with_capacity(writes.len());
        {
            let mut state = self.state();
            for ContentWrite { id, expected, to } in writes.iter().cloned() {
                let stored = state.content(collection, &id);
                if stored.as_ref().map(|stored| &stored.guard) != expected.as_ref() {
                    wrote.push(Wrote::Refused(stored));
                    continue;
                }
                if let Some((guard, body)) = to {
                    let operations = stored.map(|stored| stored.operations).unwrap_or_default();
                    state.put_content(collection, Stored { id, body, guard, operations });
                } else {
                    state.contents.remove(&(collection.clone(), id.clone()));
                    state.reacting.put_plain(collection, id, None);
                }
                wrote.push(Wrote::Written);
            }
        }
        self.0.changed.notify_waiters();
        Ok(wrote)
    }

    async fn operate(
        &self,
        collection: &ExternalCollection,
        operations: Arc<[(DocumentId, Operation)]>,
    ) -> Result<Vec<Operated>> {
        let mut operated = Vec::with_capacity(operations.len());
        {
            let mut state = self.state();
            for (id, operation) in operations.iter() {
                let stored = state.content(collection, id);
                operated.push(match stored {
                    None => Operated::Missing,
                    Some(stored) => match stored.operated(operation, System.random()) {
                        Ok(stored) => {
                            state.put_content(collection, stored);
                            Operated::Applied
                        }
                        Err(refused) => refused,
                    },
                });
            }
        }
        self.0.changed.notify_waiters();
        Ok(operated)
    }
}
