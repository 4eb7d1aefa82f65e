//! The documents that reactions are about: those of projections, and those of collections that any program writes to.

use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use leftfold::documents::Record;
use leftfold::react::{Found, On, Plain};
use leftfold::{DocumentId, Documents as _, Json, Result};
use mongodb::options::Hint;

use super::ids;
use crate::body::{self, Style};
use crate::error::Failure;
use crate::generations::Stand;
use crate::schema::records;
use crate::{Base, MAX_IDS, Mongo, batch, contents, record};

/// The name of the collection in which documents are, and how often that was another one before.
pub(super) async fn collection_of(base: &Base, on: &On) -> Result<(String, i64), Failure> {
    Ok(match on {
        On::Projection(collection) => {
            let Stand { live, switches } = base.stand(collection).await?;
            (records(&collection.generation(live)), switches)
        }
        On::Plain(plain) => (plain.as_str().to_owned(), 0),
    })
}

/// The `_id` of a document. `None` if none can have it.
pub(super) fn key_of(on: &On, id: &DocumentId) -> Option<Bson> {
    match on {
        On::Projection(_) => Some(Bson::String(id.as_str().to_owned())),
        On::Plain(_) => ids::value(id),
    }
}

/// A document as reactions see it. `None` if readers see none.
pub(super) fn decode(on: &On, stored: &RawDocument) -> Result<Option<Found>, Failure> {
    match on {
        On::Projection(_) => Ok(found(record::decode(stored)?)),
        On::Plain(_) => {
            let id = stored.get("_id")?.ok_or_else(|| Failure::damaged("a document has no _id"))?;
            let body = match contents::body(stored)? {
                Some(body) => body,
                None => Json::stored(body::text(bson::raw::RawBsonRef::Document(stored), Style::Relaxed)?),
            };
            Ok(Some((ids::of(id)?, body)))
        }
    }
}

fn found(record: Record) -> Option<Found> {
    Some((record.id, record.body?))
}

impl Mongo {
    pub(super) async fn documents(&self, on: &On, ids: Vec<DocumentId>) -> Result<Vec<Found>> {
        let base = &self.inner.base;
        let plain = match on {
            On::Projection(collection) => {
                let records = self.load_current(collection, ids).await?;
                return Ok(records.into_iter().filter_map(found).collect());
            }
            On::Plain(plain) => plain,
        };
        base.run("load documents from", base.catch_up()).await?;
        let keys: Vec<_> = ids.iter().filter_map(ids::value).collect();
        let documents = base.plain(plain);
        let mut all = Vec::with_capacity(keys.len());
        for keys in keys.chunks(MAX_IDS) {
            let find = documents.find(doc! { "_id": { "$in": keys } }).batch_size(batch(keys.len()));
            all.extend(base.run("load documents from", list(on, find)).await?);
        }
        Ok(all)
    }

    pub(super) async fn page(&self, on: &On, after: Option<DocumentId>, most: usize) -> Result<Vec<Found>> {
        let base = &self.inner.base;
        let plain = match on {
            On::Projection(collection) => {
                let records = self.scan(collection, after, most).await?;
                return Ok(records.into_iter().filter_map(found).collect());
            }
            On::Plain(plain) => plain,
        };
        // For MongoDB, none is no limit.
        if most == 0 {
            return Ok(Vec::new());
        }
        let documents = base.plain(plain);
        let mut find = documents.find(Document::new()).sort(doc! { "_id": 1 });
        if let Some(after) = after {
            let Some(key) = ids::value(&after) else {
                let expected = "an id that a page of documents ended with";
                return Err(leftfold::Invalid::new("document id", after.as_str(), expected).into());
            };
            // A comparison would only find ids of the same type; a bound of the index finds those of all types behind it.
            let others = doc! { "_id": { "$ne": key.clone() } };
            find = documents.find(others).sort(doc! { "_id": 1 });
            find = find.min(doc! { "_id": key }).hint(Hint::Keys(doc! { "_id": 1 }));
        }
        let find = find.limit(i64::try_from(most).unwrap_or(i64::MAX)).batch_size(batch(most));
        base.run("list documents in", list(on, find)).await
    }
}

async fn list(on: &On, find: mongodb::action::Find<'_, RawDocumentBuf>) -> Result<Vec<Found>, Failure> {
    let mut cursor = find.await?;
    let mut all = Vec::new();
    while cursor.advance().await? {
        all.extend(decode(on, cursor.current())?);
    }
    Ok(all)
}

impl Base {
    fn plain(&self, plain: &Plain) -> mongodb::Collection<RawDocumentBuf> {
        self.db.collection(plain.as_str())
    }
}
