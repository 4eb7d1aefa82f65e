//! Documents written without events: each collection has a table with its name.
//!
//! Any program may read the columns `id` and `body`, and reactions follow them. Writes are guarded
//! statements, and the statement that writes also carries out operations.

mod operate;
mod prepare;
mod read;
mod record;
mod write;

use std::sync::Arc;

use leftfold::content::{ContentWrite, Contents, Operated, Operation, Stored, Wrote};
use leftfold::react::ExternalCollection;
use leftfold::{DocumentId, Result};
use rusqlite::Connection;

pub(crate) use self::operate::Operating;
use crate::Sqlite;

impl Contents for Sqlite {
    /// Concurrent pieces share a commit; small pieces only let writing begin early.
    const PIECE: usize = 50;

    async fn prepare_contents(&self, collection: &ExternalCollection) -> Result<()> {
        self.inner.writer.run(prepare::PrepareWork(collection.clone())).await
    }

    async fn contents(&self, collection: &ExternalCollection, ids: Vec<DocumentId>) -> Result<Vec<Stored>> {
        let collection = collection.clone();
        let read = move |file: &Connection| {
            let found = ids.into_iter().map(|id| read::find(file, &collection, id));
            found.filter_map(Result::transpose).collect()
        };
        self.inner.readers.read("load documents from", read).await
    }

    async fn write_contents(
        &self,
        collection: &ExternalCollection,
        writes: Arc<[ContentWrite]>,
    ) -> Result<Vec<Wrote>> {
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        self.inner.writer.run(write::WriteWork { collection: collection.clone(), writes }).await
    }

    async fn operate(
        &self,
        collection: &ExternalCollection,
        operations: Arc<[(DocumentId, Operation)]>,
    ) -> Result<Vec<Operated>> {
        if operations.is_empty() {
            return Ok(Vec::new());
        }
        self.inner.writer.run(operate::OperateWork { collection: collection.clone(), operations }).await
    }
}
