//! Queries: their size limits, and lists by an index.

use bson::{Document, RawDocument, RawDocumentBuf};
use mongodb::options::Hint;

use super::base::Base;
use crate::encoding;
use crate::error::Failure;

/// The largest number of ids in one query: a query is a BSON document, with the size limit of one.
pub(crate) const MAX_IDS: usize = 20_000;
const MAX_BATCH: u32 = 1_000_000;

impl Base {
    /// Returns the matching documents in this order, up to the limit.
    pub(crate) async fn list<T>(
        &self,
        collection: &str,
        filter: Document,
        sort: Document,
        index: &str,
        most: usize,
        decode: impl Fn(&RawDocument) -> Result<T, Failure>,
    ) -> Result<Vec<T>, Failure> {
        // MongoDB treats a limit of 0 as no limit.
        if most == 0 {
            return Ok(Vec::new());
        }
        let find = self.db.collection::<RawDocumentBuf>(collection);
        let find = find.find(filter).sort(sort).hint(Hint::Name(index.to_owned()));
        let find = find.limit(encoding::limit(most));
        let mut found = find.batch_size(batch(most)).await?;
        let mut list = Vec::new();
        while found.advance().await? {
            list.push(decode(found.current())?);
        }
        Ok(list)
    }
}

/// Returns a batch size that fits the whole result, so that the server need not keep a cursor open.
pub(crate) fn batch(count: usize) -> u32 {
    u32::try_from(count.saturating_add(1)).map_or(MAX_BATCH, |count| count.min(MAX_BATCH))
}
