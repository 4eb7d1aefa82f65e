//! Documents written without events: each collection has its own name, and any program may read it.

mod direct;
mod operate;
mod prepare;
mod read;
mod record;
mod together;
mod write;

use std::sync::Arc;

use leftfold::content::{ContentWrite, Contents, Operated, Operation, Stored, Wrote};
use leftfold::react::ExternalCollection;
use leftfold::{DocumentId, Result};

pub(crate) use self::record::body;
use crate::Mongo;

/// The `_id` of a document is its id, unless the id is the text of [another
/// type](crate::Mongo#impl-ReactionStore-for-Mongo). Body fields are at the top level, and
/// Leftfold's own fields are in `_content`.
impl Contents for Mongo {
    async fn prepare_contents(&self, collection: &ExternalCollection) -> Result<()> {
        self.inner.base.prepare_contents(collection).await
    }

    async fn contents(&self, collection: &ExternalCollection, ids: Vec<DocumentId>) -> Result<Vec<Stored>> {
        let base = &self.inner.base;
        let found = base.run("load documents from", base.kept(collection, ids.iter())).await?;
        Ok(found.into_values().map(|kept| kept.stored).collect())
    }

    async fn write_contents(
        &self,
        collection: &ExternalCollection,
        writes: Arc<[ContentWrite]>,
    ) -> Result<Vec<Wrote>> {
        let base = &self.inner.base;
        base.write_durably("write documents to", base.write_contents(collection, &writes)).await
    }

    async fn operate(
        &self,
        collection: &ExternalCollection,
        operations: Arc<[(DocumentId, Operation)]>,
    ) -> Result<Vec<Operated>> {
        let base = &self.inner.base;
        base.write_durably("apply operations in", base.operate(collection, &operations)).await
    }
}
