//! The guarded writes of repairs.

use std::sync::Arc;

use tokio::time::sleep;

use super::RepairOutcome;
use crate::backoff::Backoff;
use crate::documents::{Collection, CollectionWrites, Commit, CommitOutcome, DocumentWrite, Record};
use crate::env::Env;
use crate::error::{Error, Kind, Result};
use crate::event::DocumentId;
use crate::fold::Folder;
use crate::fold::Projection;
use crate::store::Store;

/// The result of repairing one document, and its write, if there is one.
pub(super) struct DocumentRepair {
    pub(super) id: DocumentId,
    pub(super) outcome: RepairOutcome,
    pub(super) write: Option<DocumentWrite>,
}

/// The result of repairing several documents.
#[derive(Default)]
pub(super) struct Repairs {
    pub(super) documents: Vec<DocumentRepair>,
    /// The streams that the documents were folded without, and how far. A later retry of such a
    /// stream needs to know.
    pub(super) streams: Vec<DocumentWrite>,
}

impl Repairs {
    pub(super) fn push(&mut self, id: DocumentId, outcome: RepairOutcome, write: Option<DocumentWrite>) {
        self.documents.push(DocumentRepair { id, outcome, write });
    }
}

/// Guarded writes, retried with growing delays.
pub(super) struct Attempts(Box<dyn Iterator<Item = std::time::Duration> + Send>);

impl Attempts {
    pub(super) fn new(env: &dyn Env) -> Self {
        Self(Box::new(Backoff::default().limit(20).delays(env.random())))
    }

    /// Writes the repaired documents. Returns the documents to repair again because another writer
    /// changed something.
    pub(super) async fn wrote<S: Store, P: Projection>(
        &mut self,
        store: &S,
        folder: &Folder<P>,
        repairs: &Repairs,
    ) -> Result<Vec<DocumentId>> {
        let writes: Vec<_> = repairs.documents.iter().filter_map(|repair| repair.write.clone()).collect();
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        let ids = repairs.documents.iter().map(|repair| repair.id.clone()).collect();
        let streams =
            CollectionWrites { collection: folder.collection.streams(), writes: repairs.streams.clone() };
        let documents = CollectionWrites { collection: folder.collection.clone(), writes };
        self.committed(store, vec![streams, documents], ids).await
    }

    /// Commits the changes. Returns the given ids if another writer changed something.
    pub(super) async fn committed<S: Store>(
        &mut self,
        store: &S,
        mut changes: Vec<CollectionWrites>,
        mut ids: Vec<DocumentId>,
    ) -> Result<Vec<DocumentId>> {
        changes.retain(|changes| !changes.writes.is_empty());
        let collection = changes.last().map(|changes| changes.collection.base().to_string());
        match store.commit(Arc::new(Commit { advance: None, changes })).await {
            Ok(CommitOutcome::Applied) => return Ok(Vec::new()),
            // A store without transactions has written the documents it does not name; one with
            // transactions has written none. Repairing a whole document again does no harm.
            Ok(CommitOutcome::Conflict(_) | CommitOutcome::Unknown(_)) => {}
            Err(error) if error.is_transient() => {}
            Err(error) => return Err(error),
        }
        let Some(delay) = self.0.next() else {
            ids.truncate(1);
            let collection = collection.unwrap_or_default();
            let message =
                format!("repairing {ids:?} in {collection}: other writers keep changing it; try again");
            return Err(Error::new(Kind::Conflict, message));
        };
        sleep(delay).await;
        Ok(ids)
    }
}

pub(super) async fn one<S: Store>(
    store: &S,
    collection: &Collection,
    id: &DocumentId,
) -> Result<Option<Record>> {
    Ok(store.load_current(collection, vec![id.clone()]).await?.pop())
}
