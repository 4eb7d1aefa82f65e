//! Reads of documents: by id, in pages, and counts.

use std::collections::HashMap;

use bson::{Bson, Document, RawBsonRef, RawDocumentBuf, doc};
use jiff::Timestamp;
use leftfold::documents::{DocumentCounts, DocumentWrite, Header, Record};
use leftfold::{Collection, DocumentId};
use mongodb::options::Hint;

use super::record;
use crate::connection::{Base, MAX_IDS, batch};
use crate::encoding;
use crate::error::Failure;
use crate::schema::indexes::{GONE_INDEX, PARKED_INDEX};
use crate::schema::records;

impl Base {
    fn records(&self, collection: &Collection) -> mongodb::Collection<RawDocumentBuf> {
        self.db.collection(&records(collection))
    }

    /// Returns the records that exist.
    pub(super) async fn load(
        &self,
        collection: &Collection,
        ids: &[DocumentId],
    ) -> Result<Vec<Record>, Failure> {
        let names: Vec<_> = ids.iter().map(DocumentId::as_str).collect();
        let filter = doc! { "_id": { "$in": names } };
        Ok(self.find(collection, filter, ids.len(), usize::MAX).await?.0)
    }

    /// Returns the matching records after an id, and whether there may be more.
    pub(super) async fn page(
        &self,
        collection: &Collection,
        mut filter: Document,
        after: Option<DocumentId>,
        most: usize,
        bytes: usize,
    ) -> Result<(Vec<Record>, bool), Failure> {
        if let Some(after) = after {
            filter.insert("_id", doc! { "$gt": after.as_str() });
        }
        self.find(&self.named(collection).await?, filter, most, bytes).await
    }

    /// Returns records ordered by id, up to a number of records and of body bytes, and whether
    /// there may be more.
    async fn find(
        &self,
        collection: &Collection,
        filter: Document,
        most: usize,
        bytes: usize,
    ) -> Result<(Vec<Record>, bool), Failure> {
        // MongoDB treats a limit of 0 as no limit.
        if most == 0 {
            return Ok((Vec::new(), true));
        }
        let records = self.records(collection);
        let find = records.find(filter).sort(doc! { "_id": 1 });
        let find = find.limit(encoding::limit(most));
        let mut found = find.batch_size(batch(most)).await?;
        let (mut list, mut left) = (Vec::new(), bytes);
        while found.advance().await? {
            let record = record::decode(found.current())?;
            if !record.fits(list.is_empty(), &mut left) {
                return Ok((list, true));
            }
            list.push(record);
        }
        let is_full = list.len() == most;
        Ok((list, is_full))
    }

    /// Returns the headers of the existing records, and the number of the write each comes from.
    pub(super) async fn headers(
        &self,
        collection: &Collection,
        writes: &[DocumentWrite],
    ) -> Result<HashMap<DocumentId, (Header, Option<i64>)>, Failure> {
        let records = self.records(collection);
        let mut headers = HashMap::new();
        for writes in writes.chunks(MAX_IDS) {
            let ids: Vec<_> = writes.iter().map(|write| write.record.id.as_str()).collect();
            let find = records.find(doc! { "_id": { "$in": ids } });
            let find = find.projection(doc! { "_fold.mark": 1, "_fold.parked": 1, "_fold.by": 1 });
            let mut found = find.batch_size(batch(writes.len())).await?;
            while found.advance().await? {
                headers.extend([record::decode_header(found.current())?]);
            }
        }
        Ok(headers)
    }

    /// Counts the documents, and the parked ones.
    pub(super) async fn count(&self, collection: &Collection) -> Result<DocumentCounts, Failure> {
        let count = async |filter: Document, index: &str| -> Result<u64, Failure> {
            let counted =
                self.records(collection).count_documents(filter).hint(Hint::Name(index.to_owned())).await;
            Ok(counted?)
        };
        // These counts use the `_id` index and the small partial indexes: the server reads no
        // documents.
        let gone = count(doc! { "_fold.gone": { "$exists": true } }, GONE_INDEX).await?;
        let all = count(doc! {}, "_id_").await?;
        let (parked, parked_since) = self.count_parked(collection).await?;
        Ok(DocumentCounts { documents: all.saturating_sub(gone), parked, parked_since })
    }

    /// Returns the number of parked records, and the time since when the oldest is parked.
    async fn count_parked(&self, collection: &Collection) -> Result<(u64, Option<Timestamp>), Failure> {
        // `_fold.parked` is JSON text. Inside its strings every quotation mark is escaped, so only
        // the real field matches.
        let found = doc! { "$regexFind": { "input": "$_fold.parked", "regex": r#"[{,]"since":"([^"]*)""# } };
        let since = doc! { "$first": { "$getField": { "field": "captures", "input": found } } };
        let group = doc! { "_id": Bson::Null, "parked": { "$sum": 1_i64 }, "since": { "$min": since } };
        let parked = doc! { "$match": { "_fold.parked": { "$exists": true } } };
        let records = self.records(collection);
        let counted = records.aggregate([parked, doc! { "$group": group }]);
        let mut counted = counted.hint(Hint::Name(PARKED_INDEX.to_owned())).await?;
        if !counted.advance().await? {
            return Ok((0, None));
        }
        let counted = counted.current();
        let since = counted.get("since")?.and_then(RawBsonRef::as_str);
        Ok((counted.get_i64("parked")?.unsigned_abs(), since.and_then(|since| since.parse().ok())))
    }
}
