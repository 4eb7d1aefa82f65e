//! Many changes in one transaction: one query checks that all can be made, and one command makes
//! them.
//!
//! A server finds a document much faster by its `_id` alone than by `_id` and guard. In a
//! transaction the update needs no guard: if the document changed after it was read, the
//! transaction fails and writes nothing.

use std::collections::HashMap;

use bson::raw::cstr;
use bson::{Bson, Document, RawBson, RawDocument, RawDocumentBuf, doc, rawdoc};
use leftfold::DocumentId;
use leftfold::react::ExternalCollection;
use mongodb::ClientSession;

use crate::connection::bulk::{Statements, Verb, matched};
use crate::connection::{Base, Ended, MAX_IDS, Step, Work, batch};
use crate::encoding::ids;
use crate::error::Failure;

/// The number of changes from which a transaction pays off.
const MANY: usize = 16;

/// A change of one document.
pub(super) trait Change: Sync {
    /// Returns the document's id.
    fn id(&self) -> &DocumentId;

    /// Returns the document's `_id`.
    fn key(&self) -> &RawBson;

    /// Returns the update for the requested fields of the document, or `None` if the change can't
    /// be made.
    fn update(&self, found: &RawDocument) -> Result<Option<RawDocumentBuf>, Failure>;
}

impl Base {
    /// Makes many changes of different documents, if all can be made without conflict. Each change
    /// sees the given fields of its document. Returns whether it did; otherwise nothing was
    /// written.
    pub(super) async fn change_together<C: Change>(
        &self,
        plain: &ExternalCollection,
        fields: Document,
        changes: &[C],
    ) -> Result<bool, Failure> {
        if changes.len() < MANY || !self.has_transactions() {
            return Ok(false);
        }
        match self.transact_once(&Together { base: self, plain, fields, changes }).await {
            Ok(Ended::Committed(())) => Ok(true),
            Ok(Ended::Unknown(failure)) => Err(failure.unknown()),
            // The caller makes the changes one by one, which shows the reason.
            Ok(Ended::CalledOff(())) | Err(_) => Ok(false),
        }
    }
}

struct Together<'a, C> {
    base: &'a Base,
    plain: &'a ExternalCollection,
    fields: Document,
    changes: &'a [C],
}

impl<C: Change> Work for Together<'_, C> {
    type Answer = ();

    async fn run(&self, session: &mut ClientSession) -> Result<Step<()>, Failure> {
        let documents = self.base.db.collection::<RawDocumentBuf>(self.plain.as_str());
        let mut commands = Vec::new();
        for changes in self.changes.chunks(MAX_IDS) {
            let keys = changes.iter().map(|change| Bson::try_from(change.key().clone()));
            let keys = keys.collect::<Result<Vec<_>, _>>()?;
            let find = documents.find(doc! { "_id": { "$in": keys } }).projection(self.fields.clone());
            let mut cursor = find.batch_size(batch(changes.len())).session(&mut *session).await?;
            let mut found = HashMap::with_capacity(changes.len());
            while cursor.advance(session).await? {
                let document = cursor.current();
                let key = document.get("_id")?.ok_or_else(|| Failure::damaged("a document has no _id"))?;
                found.insert(ids::of(key)?, document.to_owned());
            }
            for change in changes {
                // A document with two changes is found only once, so the second change aborts the
                // transaction.
                let Some(update) = found
                    .remove(change.id())
                    .map(|found: RawDocumentBuf| change.update(&found))
                    .transpose()?
                    .flatten()
                else {
                    return Ok(Step::CallOff(()));
                };
                let mut statement = RawDocumentBuf::new();
                statement.append(cstr!("q"), by(change.key()));
                statement.append(cstr!("u"), update);
                Statements::push(&mut commands, statement);
            }
        }
        for statements in &commands {
            let command = statements.command(Verb::Update, self.plain.as_str());
            let reply = self.base.db.run_raw_command(command).session(&mut *session).await?;
            if matched(&reply)? < statements.count() {
                return Ok(Step::CallOff(()));
            }
        }
        Ok(Step::Keep(()))
    }
}

/// Returns the filter for an `_id`. An object needs `$eq`, because it could be taken for query
/// operators.
fn by(key: &RawBson) -> RawDocumentBuf {
    let mut filter = RawDocumentBuf::new();
    match key {
        RawBson::Document(_) => filter.append(cstr!("_id"), rawdoc! { "$eq": key.clone() }),
        key => filter.append(cstr!("_id"), key.clone()),
    }
    filter
}
