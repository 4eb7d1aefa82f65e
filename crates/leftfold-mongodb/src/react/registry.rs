//! The registered reactions, one document each.
//!
//! ```text
//! { _id: "mail", version: 3, reaction: '{"name":"mail",…}', comparing: { documents: "cart-42" } }
//! ```
//!
//! The progress of a comparison has its own field, because stored document ids can exceed the
//! length limit of ids that users enter.

use bson::{Document, RawDocument, RawDocumentBuf, doc};
use leftfold::DocumentId;
use leftfold::react::{Comparing, Registered};

use crate::connection::Base;
use crate::error::{Failure, is_duplicate};
use crate::schema::REACTIONS;

impl Base {
    pub(super) async fn registered(&self) -> Result<Vec<Registered>, Failure> {
        let reactions = self.db.collection::<RawDocumentBuf>(REACTIONS);
        let mut found = reactions.find(doc! {}).sort(doc! { "_id": 1 }).await?;
        let mut all = Vec::new();
        while found.advance().await? {
            all.push(decode(found.current())?);
        }
        Ok(all)
    }

    pub(super) async fn register(&self, seen: Option<u64>, reaction: Registered) -> Result<bool, Failure> {
        let reactions = self.db.collection::<Document>(REACTIONS);
        let (name, stored) = (reaction.name.clone(), encode(reaction)?);
        let Some(seen) = seen else {
            return match reactions.insert_one(stored).await {
                Ok(_) => Ok(true),
                Err(error) if is_duplicate(&error) => Ok(false),
                Err(error) => Err(Failure::from(error).unknown()),
            };
        };
        let there = doc! { "_id": name, "version": seen.cast_signed() };
        let replaced = reactions.replace_one(there, stored).await;
        Ok(replaced.map_err(|error| Failure::from(error).unknown())?.matched_count == 1)
    }
}

fn encode(mut reaction: Registered) -> Result<Document, Failure> {
    let comparing = match reaction.comparing.take() {
        None => None,
        Some(Comparing::ToBegin) => Some(doc! {}),
        Some(Comparing::Documents(id)) => Some(doc! { "documents": id.as_str() }),
        Some(Comparing::Tasks(id)) => Some(doc! { "tasks": id.as_str() }),
    };
    let text = serde_json::to_string(&reaction).map_err(|error| Failure::damaged(error.to_string()))?;
    let mut stored =
        doc! { "_id": reaction.name, "version": reaction.version.cast_signed(), "reaction": text };
    if let Some(comparing) = comparing {
        stored.insert("comparing", comparing);
    }
    Ok(stored)
}

pub(super) fn decode(stored: &RawDocument) -> Result<Registered, Failure> {
    let read = |error: serde_json::Error| Failure::damaged(format!("a reaction can't be read: {error}"));
    let reaction: Registered = serde_json::from_str(stored.get_str("reaction")?).map_err(read)?;
    let comparing = match stored.get("comparing")?.and_then(bson::RawBsonRef::as_document) {
        None => None,
        Some(comparing) => {
            let id = |field: &str| -> Result<Option<DocumentId>, Failure> {
                Ok(comparing.get(field)?.and_then(bson::RawBsonRef::as_str).map(DocumentId::stored))
            };
            let documents = id("documents")?.map(Comparing::Documents);
            Some(documents.or(id("tasks")?.map(Comparing::Tasks)).unwrap_or_default())
        }
    };
    Ok(Registered { comparing, ..reaction })
}

#[cfg(test)]
mod tests {
    use leftfold::react::{DocumentSource, ExternalCollection};

    use super::*;

    #[test]
    fn what_is_known_comes_back_as_it_went_in() {
        let long = DocumentId::stored(&"x".repeat(999));
        for comparing in [
            None,
            Some(Comparing::ToBegin),
            Some(Comparing::Documents(long.clone())),
            Some(Comparing::Tasks(long.clone())),
        ] {
            let reaction = Registered {
                name: "mail".to_owned(),
                version: u64::MAX,
                on: Some(DocumentSource::External(ExternalCollection::new("carts").unwrap())),
                definition: "{}".to_owned(),
                code: 3,
                paused: true,
                paused_because: Some("it said so".to_owned()),
                throttled: Some("2026-01-01T00:00:00.000000001Z".parse().unwrap()),
                comparing,
            };
            let stored = RawDocumentBuf::try_from(&encode(reaction.clone()).unwrap()).unwrap();
            assert_eq!(decode(&stored).unwrap(), reaction);
        }
    }
}
