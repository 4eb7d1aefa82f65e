//! Documents: each collection has a table, and a view with the collection's name for queries.
//!
//! Rows are never deleted: a row without a body still stores its mark.

mod checkpoint;
pub(crate) mod collections;
mod commit;
pub(crate) mod generations;
mod lease;
mod read;
mod record;

use std::sync::Arc;
use std::time::Duration;

use leftfold::documents::{Checkpoint, Claim, Commit, CommitOutcome, DocumentCounts, Generations, Record};
use leftfold::{Collection, DocumentId, Documents, Mark, Result};

pub(crate) use self::checkpoint::all_marks;
use self::read::Page;
use crate::Sqlite;

impl Documents for Sqlite {
    async fn prepare(&self, collection: &Collection) -> Result<()> {
        self.inner.writer.run(collections::Prepare(collection.clone())).await
    }

    async fn load(&self, collection: &Collection, ids: Vec<DocumentId>) -> Result<Vec<Record>> {
        let collection = collection.clone();
        let load = move |file: &_| read::load(file, &collection, &ids);
        self.inner.readers.read("load documents from", load).await
    }

    async fn commit(&self, commit: Arc<Commit>) -> Result<CommitOutcome> {
        commit.check()?;
        point!("batch");
        self.inner.writer.run(commit::CommitWork(commit)).await
    }

    async fn scan(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> Result<Vec<Record>> {
        Ok(self.scan_page(collection, after, limit, usize::MAX).await?.0)
    }

    async fn scan_page(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
        bytes: usize,
    ) -> Result<(Vec<Record>, bool)> {
        let page = Page { collection: collection.clone(), column: "body", after, most: limit, bytes };
        self.inner.readers.read("list documents in", move |file| page.read(file)).await
    }

    async fn parked(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> Result<Vec<Record>> {
        let collection = collection.clone();
        let page = Page { collection, column: "parked", after, most: limit, bytes: usize::MAX };
        Ok(self.inner.readers.read("list documents in", move |file| page.read(file)).await?.0)
    }

    async fn count(&self, collection: &Collection) -> Result<DocumentCounts> {
        let collection = collection.clone();
        self.inner.readers.read("count documents in", move |file| read::count(file, &collection)).await
    }

    async fn checkpoint(&self, projection: &Collection) -> Result<Checkpoint> {
        let projection = projection.clone();
        let read = move |file: &_| checkpoint::read(file, &projection);
        self.inner.readers.read("read a checkpoint in", read).await
    }

    async fn advanced(&self, projection: &Collection, from: &Mark) -> Result<Mark> {
        self.wait_for_mark(projection, from).await
    }

    async fn claim(&self, projection: &Collection, owner: &str, lease: Duration) -> Result<Claim> {
        let work = lease::ClaimWork { projection: projection.clone(), owner: owner.to_owned(), lease };
        self.inner.writer.run(work).await
    }

    async fn release(&self, projection: &Collection, owner: &str) -> Result<()> {
        let work = lease::ReleaseWork { projection: projection.clone(), owner: owner.to_owned() };
        self.inner.writer.run(work).await
    }

    async fn generations(&self, collection: &Collection) -> Result<Generations> {
        let collection = collection.clone();
        let read = move |file: &_| generations::known(file, &collection);
        self.inner.readers.read("read the generations in", read).await
    }

    async fn put_generations(&self, collection: &Collection, seen: u64, next: Generations) -> Result<bool> {
        self.inner.writer.run(generations::PutWork { collection: collection.clone(), seen, next }).await
    }

    async fn drop_generation(&self, generation: &Collection) -> Result<()> {
        self.inner.writer.run(generations::DropWork(generation.clone())).await
    }
}
