//! Documents: each projection has a collection of records, and a view with the projection's name
//! for queries. Deleted documents remain as records that the view hides. So every record has its
//! own guard, with or without transactions.

pub(crate) mod collections;
mod commit;
pub(crate) mod generations;
pub(crate) mod lease;
pub(crate) mod record;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use jiff::Timestamp;
use leftfold::documents::{
    Checkpoint, Claim, Commit, CommitOutcome, DocumentCounts, DocumentWrite, Generations, Header, Record,
};
use leftfold::{Collection, DocumentId, Documents, Mark, Result};
use mongodb::options::Hint;

use crate::Mongo;
use crate::connection::{Base, MAX_IDS, batch, patiently};
use crate::error::Failure;
use crate::schema::indexes::{GONE_INDEX, PARKED_INDEX};
use crate::schema::{CHECKPOINTS, records};
use crate::watch::{Known, Scope};

impl Documents for Mongo {
    async fn prepare(&self, collection: &Collection) -> Result<()> {
        collections::prepare(&self.inner.base, collection).await
    }

    async fn load(&self, collection: &Collection, ids: Vec<DocumentId>) -> Result<Vec<Record>> {
        let base = &self.inner.base;
        let collection = &base.run("look for a generation in", base.named(collection)).await?;
        let mut records = Vec::with_capacity(ids.len());
        for ids in ids.chunks(MAX_IDS) {
            let names: Vec<_> = ids.iter().map(DocumentId::as_str).collect();
            let found = base.find(collection, doc! { "_id": { "$in": names } }, ids.len(), usize::MAX);
            records.extend(base.run("load documents from", found).await?.0);
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
        let base = &self.inner.base;
        let failed = |failure: Failure| failure.to_error("commit documents to", &base.place);
        let asked = Arc::clone(&commit);
        let commit = patiently(base.named_all(commit)).await.map_err(failed)?;
        let mut outcome = base.commit(&commit).await.map_err(failed)?;
        if let CommitOutcome::Conflict(conflict) = &mut outcome {
            // Report collections under the names that the caller used.
            for (collection, _) in &mut conflict.documents {
                let mut names = asked.changes.iter().zip(&commit.changes);
                if let Some((asked, _)) = names.find(|(_, named)| named.collection == *collection) {
                    *collection = asked.collection.clone();
                }
            }
        }
        if let (CommitOutcome::Applied, Some(advance)) = (&outcome, &commit.advance) {
            base.board.moved(&advance.projection.stored(0), &advance.to.mark);
        }
        Ok(outcome)
    }

    async fn scan(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> Result<Vec<Record>> {
        let seen = doc! { "_fold.gone": { "$exists": false } };
        Ok(self.list(collection, seen, after, limit, usize::MAX).await?.0)
    }

    async fn scan_page(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
        bytes: usize,
    ) -> Result<(Vec<Record>, bool)> {
        let seen = doc! { "_fold.gone": { "$exists": false } };
        self.list(collection, seen, after, limit, bytes).await
    }

    async fn parked(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> Result<Vec<Record>> {
        let parked = doc! { "_fold.parked": { "$exists": true } };
        Ok(self.list(collection, parked, after, limit, usize::MAX).await?.0)
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
        let base = &self.inner.base;
        let (_waiting, mut known) = base.wait(Scope::All);
        loop {
            let switches = known.borrow_and_update().switches();
            let named = base.run("look for a generation in", base.named(projection)).await?;
            let stored = named.stored(0);
            let (mark, changes, is_told) = {
                let known = known.borrow();
                let (mark, changes) = known.checkpoint(&stored);
                (mark, changes, known.is_told(Scope::All))
            };
            if mark != *from && mark.covers(from) {
                return Ok(mark);
            }
            // If the board receives every step, it also receives the next one: there is no need to
            // read.
            if !(is_told && mark == *from) {
                let at = self.checkpoint(&named).await?.mark;
                if at != *from {
                    return Ok(at);
                }
            }
            // The wait can't fail: this handle keeps the board alive.
            let is_news =
                |known: &Known| known.checkpoint(&stored).1 != changes || known.switches() != switches;
            let _ = known.wait_for(is_news).await;
        }
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
        base.run("look for generations in", base.generations(collection)).await
    }

    async fn put_generations(&self, collection: &Collection, seen: u64, next: Generations) -> Result<bool> {
        let base = &self.inner.base;
        let doing = "keep the generations of a collection in";
        // The view has to follow the switch. Refuse a switch if the user may not change the view,
        // because readers would keep seeing the old generation.
        if next.switching.is_some() {
            collections::may_change_view(base, &collection.base()).await?;
        }
        let is_kept = base.run(doing, base.put_generations(collection, seen, &next)).await?;
        if is_kept {
            base.board.switched();
            point!("generation-kept");
            collections::make_view(base, &collection.base()).await?;
        }
        Ok(is_kept)
    }

    async fn drop_generation(&self, generation: &Collection) -> Result<()> {
        self.inner.base.drop_generation(generation).await
    }
}

impl Mongo {
    /// Returns the matching records, ordered by id.
    async fn list(
        &self,
        collection: &Collection,
        mut filter: Document,
        after: Option<DocumentId>,
        limit: usize,
        bytes: usize,
    ) -> Result<(Vec<Record>, bool)> {
        let base = &self.inner.base;
        if let Some(after) = after {
            filter.insert("_id", doc! { "$gt": after.as_str() });
        }
        let list = async { base.find(&base.named(collection).await?, filter, limit, bytes).await };
        base.run("list documents in", list).await
    }
}

impl Base {
    pub(crate) fn records(&self, collection: &Collection) -> mongodb::Collection<RawDocumentBuf> {
        self.db.collection(&records(collection))
    }

    /// Returns records ordered by id, up to a number of records and of body bytes, and whether
    /// there may be more.
    async fn find(
        &self,
        collection: &Collection,
        filter: Document,
        limit: usize,
        bytes: usize,
    ) -> Result<(Vec<Record>, bool), Failure> {
        // MongoDB treats a limit of 0 as no limit.
        if limit == 0 {
            return Ok((Vec::new(), true));
        }
        let records = self.records(collection);
        let find = records.find(filter).sort(doc! { "_id": 1 });
        let find = find.limit(i64::try_from(limit).unwrap_or(i64::MAX));
        let mut found = find.batch_size(batch(limit)).await?;
        let (mut list, mut left) = (Vec::new(), bytes);
        while found.advance().await? {
            let record = record::decode(found.current())?;
            if !record.fits(list.is_empty(), &mut left) {
                return Ok((list, true));
            }
            list.push(record);
        }
        let is_full = list.len() == limit;
        Ok((list, is_full))
    }

    /// Returns the headers of the existing records, and the number of the write each comes from.
    pub(crate) async fn headers(
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

    async fn count(&self, collection: &Collection) -> Result<DocumentCounts, Failure> {
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
        let said = doc! { "$regexFind": { "input": "$_fold.parked", "regex": r#"[{,]"since":"([^"]*)""# } };
        let since = doc! { "$first": { "$getField": { "field": "captures", "input": said } } };
        let group = doc! { "_id": Bson::Null, "parked": { "$sum": 1_i64 }, "since": { "$min": since } };
        let parked = doc! { "$match": { "_fold.parked": { "$exists": true } } };
        let records = self.records(collection);
        let counted = records.aggregate([parked, doc! { "$group": group }]);
        let mut counted = counted.hint(Hint::Name(PARKED_INDEX.to_owned())).await?;
        if !counted.advance().await? {
            return Ok((0, None));
        }
        let counted = counted.current();
        let since = counted.get("since")?.and_then(bson::RawBsonRef::as_str);
        Ok((counted.get_i64("parked")?.unsigned_abs(), since.and_then(|since| since.parse().ok())))
    }

    pub(crate) async fn checkpoint(&self, projection: &Collection) -> Result<Checkpoint, Failure> {
        let checkpoints = self.db.collection::<RawDocumentBuf>(CHECKPOINTS);
        match checkpoints.find_one(doc! { "_id": projection.stored(0).as_str() }).await? {
            Some(stored) => checkpoint(&stored),
            None => Ok(Checkpoint::default()),
        }
    }
}

/// Decodes a stored checkpoint.
pub(crate) fn checkpoint(stored: &RawDocument) -> Result<Checkpoint, Failure> {
    let read = |error: serde_json::Error| Failure::damaged(error.to_string());
    Ok(Checkpoint {
        mark: serde_json::from_str(stored.get_str("mark")?).map_err(read)?,
        tally: serde_json::from_str(stored.get_str("tally")?).map_err(read)?,
    })
}
