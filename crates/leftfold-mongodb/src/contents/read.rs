//! Reads of documents by id.

use std::collections::HashMap;

use bson::{Bson, RawBson, RawDocumentBuf, doc};
use leftfold::DocumentId;
use leftfold::react::ExternalCollection;

use super::record::{Kept, decode};
use crate::connection::{Base, MAX_IDS, batch};
use crate::encoding::ids;
use crate::error::Failure;

impl Base {
    /// Returns the documents that exist. It finds everything that a refused write saw: that write
    /// waited until a majority had it.
    pub(super) async fn kept<'i>(
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
pub(super) fn key(id: &DocumentId) -> Option<RawBson> {
    let key = RawBson::try_from(ids::value(id)?).ok()?;
    (ids::of(key.as_raw_bson_ref()).ok()? == *id).then_some(key)
}
