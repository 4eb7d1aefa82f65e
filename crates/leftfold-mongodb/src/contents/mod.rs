//! Documents written without events: each collection has its own name, and any program may read it.

mod direct;
mod operate;
mod record;
mod together;
mod write;

use std::collections::HashMap;
use std::sync::Arc;

use bson::{Bson, Document, RawBson, RawDocumentBuf, doc};
use leftfold::content::{ContentWrite, Contents, Operated, Operation, Stored, Wrote};
use leftfold::react::ExternalCollection;
use leftfold::{DocumentId, Env as _, Error, Kind, Result, System};

pub(crate) use self::record::body;
use self::record::{Kept, decode};
use crate::Mongo;
use crate::connection::{Base, MAX_IDS, batch, patiently};
use crate::encoding::ids;
use crate::error::Failure;
use crate::schema::create;

/// The `_id` of a document is its id, unless the id is the text of [another
/// type](crate::Mongo#impl-ReactionStore-for-Mongo). Body fields are at the top level, and
/// Leftfold's own fields are in `_content`.
impl Contents for Mongo {
    async fn prepare_contents(&self, collection: &ExternalCollection) -> Result<()> {
        let base = &self.inner.base;
        base.run("make a collection in", create(&base.db, collection.as_str())).await?;
        let Some(kind) = base.run("look at the collections in", base.other_kind(collection)).await? else {
            return Ok(());
        };
        let message = format!(
            "could not keep documents in {} of {}: it is a {kind}; name another collection",
            collection.as_str(),
            base.place
        );
        Err(Error::new(Kind::Invalid, message))
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

impl Base {
    /// Runs an operation that writes. If the connection fails, the outcome is unknown.
    async fn write_durably<T>(
        &self,
        doing: &str,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T> {
        // The driver's futures are large: without the box, the futures of all callers would be,
        // too.
        patiently(self.unblocked(Box::pin(work))).await.map_err(|failure| {
            let is_lost = matches!(failure.kind(), Kind::Unavailable | Kind::Contended);
            let failure = if is_lost { failure.unknown() } else { failure };
            failure.to_error(doing, &self.place)
        })
    }

    /// Returns the kind of the object with this name, if it is not a collection.
    async fn other_kind(&self, plain: &ExternalCollection) -> Result<Option<String>, Failure> {
        let filter = doc! { "name": plain.as_str(), "type": { "$ne": "collection" } };
        let mut found = self.db.list_collections().filter(filter).await?;
        if !found.advance().await? {
            return Ok(None);
        }
        let found = Document::try_from(found.current())?;
        Ok(Some(found.get_str("type").unwrap_or_default().to_owned()))
    }

    /// Returns the documents that exist. It finds everything that a refused write saw: that write
    /// waited until a majority had it.
    async fn kept<'i>(
        &self,
        plain: &ExternalCollection,
        ids: impl Iterator<Item = &'i DocumentId>,
    ) -> Result<HashMap<DocumentId, Kept>, Failure> {
        let keys: Vec<_> = ids.filter_map(key).map(Bson::try_from).collect::<Result<_, _>>()?;
        if self.has_transactions() && !keys.is_empty() {
            self.catch_up().await?;
        }
        let documents = self.db.collection::<RawDocumentBuf>(plain.as_str());
        let mut all = HashMap::with_capacity(keys.len());
        for keys in keys.chunks(MAX_IDS) {
            let find = documents.find(doc! { "_id": { "$in": keys } });
            let mut found = find.batch_size(batch(keys.len())).await?;
            while found.advance().await? {
                let kept = decode(found.current())?;
                all.insert(kept.stored.id.clone(), kept);
            }
        }
        Ok(all)
    }
}

/// Returns the `_id` of a document. `None` if no document can have this id, or only under another
/// text.
fn key(id: &DocumentId) -> Option<RawBson> {
    let key = RawBson::try_from(ids::value(id)?).ok()?;
    (ids::of(key.as_raw_bson_ref()).ok()? == *id).then_some(key)
}

/// Returns a random number, unique per call.
fn number() -> i64 {
    System.random().cast_signed()
}
