//! Many changes together: in a transaction, one query tells whether all can be made, and one command makes them.
//!
//! A server finds a document by its `_id` alone much faster than by its `_id` and a guard. In a transaction the guard need not be part of the change: who
//! changes a document that others have changed since it was read fails, and then nothing is written.

use std::collections::HashMap;

use bson::raw::cstr;
use bson::{Bson, Document, RawBson, RawDocument, RawDocumentBuf, doc, rawdoc};
use leftfold::DocumentId;
use leftfold::react::Plain;
use mongodb::ClientSession;

use crate::bulk::{Statements, Verb, held};
use crate::error::Failure;
use crate::react::ids;
use crate::transaction::{Ended, Step, Work};
use crate::{Base, MAX_IDS, batch};

/// So many changes are worth a transaction.
const MANY: usize = 16;

/// A change of one document.
pub(super) trait Change: Sync {
    /// The document's id.
    fn id(&self) -> &DocumentId;

    /// Its `_id`.
    fn key(&self) -> &RawBson;

    /// The update that makes it, given what was asked for of the document; `None` if it can't be made.
    fn update(&self, found: &RawDocument) -> Result<Option<RawDocumentBuf>, Failure>;
}

impl Base {
    /// Makes many changes, of different documents, if all can be made and nobody is in the way. They are told these fields of their documents.
    /// Answers whether it did: otherwise nothing was written.
    pub(super) async fn change_together<C: Change>(
        &self,
        plain: &Plain,
        fields: Document,
        changes: &[C],
    ) -> Result<bool, Failure> {
        if changes.len() < MANY || !self.has_transactions() {
            return Ok(false);
        }
        match self.transact_once(&Together { base: self, plain, fields, changes }).await {
            Ok(Ended::Committed(())) => Ok(true),
            Ok(Ended::Unknown(failure)) => Err(failure.unknown()),
            // One by one it shows what is the matter.
            Ok(Ended::CalledOff(())) | Err(_) => Ok(false),
        }
    }
}

struct Together<'a, C> {
    base: &'a Base,
    plain: &'a Plain,
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
                // A document that is to be changed twice is found once.
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
            if held(&reply)? < statements.count() {
                return Ok(Step::CallOff(()));
            }
        }
        Ok(Step::Keep(()))
    }
}

/// What finds a document by its `_id`. An object could be taken for what must hold for it.
fn by(key: &RawBson) -> RawDocumentBuf {
    let mut filter = RawDocumentBuf::new();
    match key {
        RawBson::Document(_) => filter.append(cstr!("_id"), rawdoc! { "$eq": key.clone() }),
        key => filter.append(cstr!("_id"), key.clone()),
    }
    filter
}
