//! The documents of reactions: those of projections, and those of collections that other programs
//! write.

use std::collections::HashSet;

use bson::raw::RawBsonRef;
use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use leftfold::react::{Body, DocumentSource, FoundDocument, FoundDocuments};
use leftfold::{DocumentId, Json, Result};
use mongodb::options::Hint;

use crate::connection::{Base, MAX_IDS, batch};
use crate::contents;
use crate::documents::generations::LiveGeneration;
use crate::documents::record;
use crate::encoding::ids;
use crate::encoding::notation::{self, Style};
use crate::error::Failure;
use crate::schema::records;

/// Returns the name of the collection that holds the documents, and the number of its switches so
/// far.
pub(super) async fn collection_of(base: &Base, on: &DocumentSource) -> Result<(String, i64), Failure> {
    Ok(match on {
        DocumentSource::Projection(collection) => {
            let LiveGeneration { live, switches } = base.live_generation(collection).await?;
            (records(&collection.generation(live)), switches)
        }
        DocumentSource::External(collection) => (collection.as_str().to_owned(), 0),
    })
}

/// Returns the `_id` of a document. `None` if no document can have this id.
pub(super) fn key_of(on: &DocumentSource, id: &DocumentId) -> Option<Bson> {
    match on {
        DocumentSource::Projection(_) => Some(Bson::String(id.as_str().to_owned())),
        DocumentSource::External(_) => ids::value(id),
    }
}

/// Decodes a document for reactions. Returns `None` if it is hidden from readers, or if its `_id`
/// can't be read.
pub(super) fn decode(on: &DocumentSource, stored: &RawDocument) -> Option<FoundDocument> {
    let id = match id_of(on, stored) {
        Ok(id) => id,
        Err(failure) => {
            tracing::warn!(%on, ?failure, "skipped a document: its _id can't be read");
            return None;
        }
    };
    let body = match on {
        DocumentSource::Projection(_) => record::decode(stored).map(|record| record.body.map(Body::from)),
        DocumentSource::External(_) => plain_body(stored).map(Some),
    };
    match body {
        Ok(body) => Some(FoundDocument { id, body: Ok(body?) }),
        Err(failure) => Some(FoundDocument { id, body: Err(failure.report().to_owned()) }),
    }
}

fn id_of(on: &DocumentSource, stored: &RawDocument) -> Result<DocumentId, Failure> {
    match on {
        DocumentSource::Projection(_) => Ok(DocumentId::stored(stored.get_str("_id")?)),
        DocumentSource::External(_) => {
            let id = stored.get("_id")?.ok_or_else(|| Failure::damaged("a document has no _id"))?;
            ids::of(id)
        }
    }
}

/// Returns the body of a document that any program may have written.
fn plain_body(stored: &RawDocument) -> Result<Body, Failure> {
    if let Some(body) = contents::body(stored)? {
        return Ok(body.into());
    }
    let json = Json::stored(notation::text(RawBsonRef::Document(stored), Style::Relaxed)?);
    Ok(Body::typed(json, Bson::Document(Document::try_from(stored)?).into()))
}

impl Base {
    /// Returns the documents that exist, up to about this many bytes.
    pub(super) async fn current_documents(
        &self,
        on: &DocumentSource,
        ids: Vec<DocumentId>,
        bytes: usize,
    ) -> Result<FoundDocuments, Failure> {
        if matches!(on, DocumentSource::External(_)) || self.has_transactions() {
            self.catch_up().await?;
        }
        let (name, _) = collection_of(self, on).await?;
        let documents = self.db.collection::<RawDocumentBuf>(&name);
        let mut found = FoundDocuments::default();
        for (at, some) in ids.chunks(MAX_IDS).enumerate() {
            let keys: Vec<_> = some.iter().filter_map(|id| key_of(on, id)).collect();
            let find = documents.find(doc! { "_id": { "$in": keys } }).batch_size(batch(some.len()));
            let mut cursor = find.await?;
            while cursor.advance().await? {
                if found.is_full(bytes) {
                    // Missing documents look the same as documents that were not read yet, so
                    // return both as left.
                    let seen: HashSet<_> = found.documents.iter().map(|document| &document.id).collect();
                    let rest = &ids[at * MAX_IDS..];
                    let left: Vec<_> = rest.iter().filter(|id| !seen.contains(id)).cloned().collect();
                    // A number also finds equal numbers of other types, which have other ids. The
                    // caller must make progress.
                    if left.len() < ids.len() {
                        found.left = left;
                        return Ok(found);
                    }
                }
                if let Some(document) = decode(on, cursor.current()) {
                    found.push(document);
                }
            }
        }
        Ok(found)
    }

    /// Returns the next page of document ids.
    pub(super) async fn page_of_ids(
        &self,
        on: &DocumentSource,
        after: Option<&DocumentId>,
        most: usize,
    ) -> Result<Vec<DocumentId>, Failure> {
        let after = after.and_then(|after| key_of(on, after));
        // Nothing sorts after `MaxKey`.
        if most == 0 || after == Some(Bson::MaxKey) {
            return Ok(Vec::new());
        }
        let (name, _) = collection_of(self, on).await?;
        let documents = self.db.collection::<RawDocumentBuf>(&name);
        let mut filter = match on {
            DocumentSource::Projection(_) => doc! { "_fold.gone": { "$exists": false } },
            DocumentSource::External(_) => Document::new(),
        };
        filter.extend(after.clone().map(|key| ("_id".to_owned(), doc! { "$ne": key }.into())));
        let mut find = documents.find(filter).sort(doc! { "_id": 1 }).projection(doc! { "_id": 1 });
        let mut last = None;
        if let Some(key) = after {
            // The index bound excludes `MaxKey`.
            last = Some(doc! { "_id": Bson::MaxKey });
            // A comparison finds only ids of the same type; an index bound finds later ids of all
            // types.
            find = find.min(doc! { "_id": key }).hint(Hint::Keys(doc! { "_id": 1 }));
        }
        // The query has no limit, because unreadable ids must not fill up the page.
        let mut cursor = find.batch_size(batch(most)).await?;
        let mut ids = Vec::new();
        while ids.len() < most && cursor.advance().await? {
            match id_of(on, cursor.current()) {
                Ok(id) => ids.push(id),
                Err(failure) => tracing::warn!(%on, ?failure, "skipped a document: its _id can't be read"),
            }
        }
        if let Some(last) = last.filter(|_| ids.len() < most)
            && let Some(found) = documents.find_one(last).projection(doc! { "_id": 1 }).await?
        {
            ids.push(id_of(on, &found)?);
        }
        Ok(ids)
    }
}
