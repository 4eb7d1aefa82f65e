//! Rejected messages, for operators.

use std::collections::BTreeMap;

use bson::{Document, RawDocument, RawDocumentBuf, doc, rawdoc};
use leftfold::Result;
use leftfold::sequence::{MAX_REJECTED, Rejected, too_many_rejected};
use mongodb::ClientSession;
use mongodb::options::Hint;

use crate::connection::{Base, Ended, Step, Work};
use crate::encoding::{json, text, time};
use crate::error::Failure;
use crate::schema::{META, REJECTED, REJECTING};

impl Base {
    /// Lists the rejected messages, by id.
    pub(super) async fn rejected(
        &self,
        after: Option<String>,
        most: usize,
    ) -> Result<Vec<Rejected>, Failure> {
        let filter = doc! { "_id": { "$gt": after.unwrap_or_default() } };
        self.list(REJECTED, filter, doc! { "_id": 1 }, "_id_", most, decode).await
    }

    /// Counts the rejected messages.
    pub(super) async fn count_rejected(&self) -> Result<u64, Failure> {
        Ok(self.db.collection::<Document>(REJECTED).count_documents(doc! {}).await?)
    }

    /// Deletes a rejected message. Returns whether it existed.
    pub(super) async fn delete_rejected(&self, id: &str) -> Result<bool, Failure> {
        let messages = self.db.collection::<Document>(REJECTED);
        Ok(messages.delete_one(doc! { "_id": id }).await?.deleted_count == 1)
    }

    /// Stores rejected messages, unless there would be too many.
    pub(super) async fn reject(&self, rejected: Vec<Rejected>) -> Result<()> {
        let rejected = rejected.into_iter().map(|rejected| (rejected.id(), rejected)).collect();
        let failed = |failure: Failure| failure.to_error("store a rejected message in", &self.place);
        match self.transact(Reject { base: self, rejected }).await.map_err(failed)? {
            Ended::Committed(true) | Ended::CalledOff(true) => Ok(()),
            Ended::Committed(false) | Ended::CalledOff(false) => Err(too_many_rejected(&self.place)),
            Ended::Unknown(failure) => Err(failed(failure)),
        }
    }
}

struct Reject<'a> {
    base: &'a Base,
    rejected: BTreeMap<String, Rejected>,
}

impl Work for Reject<'_> {
    type Answer = bool;

    async fn run(&self, session: &mut ClientSession) -> Result<Step<bool>, Failure> {
        let Self { base, rejected } = self;
        let metas = base.db.collection::<Document>(META);
        let step = doc! { "$inc": { "changes": 1_i64 } };
        metas.update_one(doc! { "_id": REJECTING }, step).upsert(true).session(&mut *session).await?;
        let mut new: BTreeMap<_, _> = rejected.iter().map(|(id, rejected)| (id.as_str(), rejected)).collect();
        for found in base.present(session, REJECTED, new.keys().copied().collect()).await? {
            new.remove(found.get_str("_id")?);
        }
        if new.is_empty() {
            return Ok(Step::CallOff(true));
        }
        let messages = base.db.collection::<Document>(REJECTED);
        let kept = messages.count_documents(doc! {}).hint(Hint::Name("_id_".to_owned()));
        if kept.session(&mut *session).await? + new.len() as u64 > MAX_REJECTED {
            return Ok(Step::CallOff(false));
        }
        let new = new.into_iter().map(|(id, rejected)| encode(id, rejected));
        let new = new.collect::<Result<_, _>>()?;
        base.insert_new(session, REJECTED, new).await?;
        Ok(Step::Keep(true))
    }
}

/// Encodes a rejected message.
fn encode(id: &str, rejected: &Rejected) -> Result<RawDocumentBuf, Failure> {
    let Rejected { source, reason, since, attributes, content } = rejected;
    let content = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: content.clone() };
    Ok(rawdoc! {
        "_id": id,
        "source": source.as_str(),
        "reason": reason.as_str(),
        "since": since.as_microsecond(),
        "attributes": text(attributes)?,
        "content": content,
    })
}

/// Decodes a rejected message.
fn decode(stored: &RawDocument) -> Result<Rejected, Failure> {
    Ok(Rejected {
        source: stored.get_str("source")?.to_owned(),
        reason: stored.get_str("reason")?.to_owned(),
        since: time(stored.get_i64("since")?)?,
        attributes: json(stored.get_str("attributes")?)?,
        content: stored.get_binary("content")?.bytes.to_vec(),
    })
}
