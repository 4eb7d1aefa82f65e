//! Documents: each projection has a collection of records, and a view with the projection's name
//! for queries. Deleted documents remain as records that the view hides. So every record has its
//! own guard, with or without transactions.

mod checkpoint;
pub(crate) mod collections;
mod commit;
pub(crate) mod generations;
pub(crate) mod lease;
mod read;
pub(crate) mod record;

use std::sync::Arc;
use std::time::Duration;

use bson::doc;
use leftfold::documents::{Checkpoint, Claim, Commit, CommitOutcome, DocumentCounts, Generations, Record};
use leftfold::{Collection, DocumentId, Documents, Mark, Result};

pub(crate) use self::checkpoint::decode as decode_checkpoint;
use crate::Mongo;
use crate::connection::MAX_IDS;

impl Documents for Mongo {
    async fn prepare(&self, collection: &Collection) -> Result<()> {
        collections::prepare(&self.inner.base, collection).await
    }

    async fn load(&self, collection: &Collection, ids: Vec<DocumentId>) -> Result<Vec<Record>> {
        let base = &self.inner.base;
        let collection = &base.run("read the generations in", base.named(collection)).await?;
        let mut records = Vec::with_capacity(ids.len());
        for ids in ids.chunks(MAX_IDS) {
            records.extend(base.run("load documents from", base.load(collection, ids)).await?);
        }
        Ok(records)
    }

    async fn load_current(&self, collection: &Collection, ids: Vec<DocumentId>) -> Result<Vec<Record>> {
        let base = &self.inner.base;
        if base.has_transactions() {
            base.run("load documents from", base.catch_up()).await?;
        }
        self.load(collection, ids).await
    }

    async fn commit(&self, commit: Arc<Commit>) -> Result<CommitOutcome> {
        commit.check()?;
        point!("batch");
        self.inner.base.commit(commit).await
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
        let base = &self.inner.base;
        let visible = doc! { "_fold.gone": { "$exists": false } };
        base.run("list documents in", base.page(collection, visible, after, limit, bytes)).await
    }

    async fn parked(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> Result<Vec<Record>> {
        let base = &self.inner.base;
        let parked = doc! { "_fold.parked": { "$exists": true } };
        let page = base.page(collection, parked, after, limit, usize::MAX);
        Ok(base.run("list documents in", page).await?.0)
    }

    async fn count(&self, collection: &Collection) -> Result<DocumentCounts> {
        let base = &self.inner.base;
        let count = async { base.count(&base.named(collection).await?).await };
        base.run("count documents in", count).await
    }

    async fn checkpoint(&self, projection: &Collection) -> Result<Checkpoint> {
        let base = &self.inner.base;
        let read = async { base.checkpoint(&base.named(projection).await?).await };
        base.run("read a checkpoint in", read).await
    }

    async fn advanced(&self, projection: &Collection, from: &Mark) -> Result<Mark> {
        self.wait_for_mark(projection, from).await
    }

    async fn claim(&self, projection: &Collection, owner: &str, lease: Duration) -> Result<Claim> {
        let base = &self.inner.base;
        let claim = async { base.claim(&base.named(projection).await?, owner, lease).await };
        base.run("claim a projection in", claim).await
    }

    async fn release(&self, projection: &Collection, owner: &str) -> Result<()> {
        let base = &self.inner.base;
        let release = async { base.release(&base.named(projection).await?, owner).await };
        base.run("release a projection in", release).await
    }

    async fn generations(&self, collection: &Collection) -> Result<Generations> {
        let base = &self.inner.base;
        base.run("read the generations in", base.generations(collection)).await
    }

    async fn put_generations(&self, collection: &Collection, seen: u64, next: Generations) -> Result<bool> {
        self.inner.base.put_generations(collection, seen, &next).await
    }

    async fn drop_generation(&self, generation: &Collection) -> Result<()> {
        self.inner.base.drop_generation(generation).await
    }
}
