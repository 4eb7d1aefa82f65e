//! Checkpoints: the mark that a projection has folded up to.

use bson::{Document, RawDocument, RawDocumentBuf, doc};
use leftfold::documents::{Advance, Checkpoint};
use leftfold::{Collection, Documents as _, Mark, Result};
use mongodb::ClientSession;

use crate::Mongo;
use crate::connection::Base;
use crate::encoding::{json, text};
use crate::error::{Failure, is_duplicate};
use crate::schema::CHECKPOINTS;
use crate::watch::{Known, Scope};

impl Base {
    /// Reads the checkpoint of a projection. A missing one is the initial checkpoint.
    pub(super) async fn checkpoint(&self, projection: &Collection) -> Result<Checkpoint, Failure> {
        let checkpoints = self.db.collection::<RawDocumentBuf>(CHECKPOINTS);
        match checkpoints.find_one(doc! { "_id": projection.stored(0).as_str() }).await? {
            Some(stored) => decode(&stored),
            None => Ok(Checkpoint::default()),
        }
    }

    /// Moves a checkpoint if it is at the expected mark. A missing checkpoint counts as the initial
    /// mark.
    pub(super) async fn advance(
        &self,
        advance: &Advance,
        session: Option<&mut ClientSession>,
    ) -> Result<bool, Failure> {
        let Advance { projection, from, to } = advance;
        let tally = text(&to.tally)?;
        let at = doc! { "_id": projection.stored(0).as_str(), "mark": from.to_string() };
        let step = doc! { "$set": { "mark": to.mark.to_string(), "tally": tally } };
        let checkpoints = self.db.collection::<Document>(CHECKPOINTS);
        let update = checkpoints.update_one(at, step).upsert(*from == Mark::default());
        let updated = match session {
            Some(session) => update.session(session).await,
            None => update.await,
        };
        match updated {
            Ok(updated) => Ok(updated.matched_count == 1 || updated.upserted_id.is_some()),
            Err(error) if is_duplicate(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Mongo {
    /// Waits until the mark of a projection differs from `from`, and returns it.
    pub(super) async fn wait_for_mark(&self, projection: &Collection, from: &Mark) -> Result<Mark> {
        let base = &self.inner.base;
        let (_waiting, mut known) = base.wait(Scope::All);
        loop {
            let switches = known.borrow_and_update().switches();
            let named = base.run("read the generations in", base.named(projection)).await?;
            let stored = named.stored(0);
            let (mark, changes, is_complete) = {
                let known = known.borrow();
                let (mark, changes) = known.checkpoint(&stored);
                (mark, changes, known.covers(Scope::All))
            };
            if mark != *from && mark.covers(from) {
                return Ok(mark);
            }
            // If the board receives every step, it also receives the next one: there is no need to
            // read.
            if !(is_complete && mark == *from) {
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
}

/// Decodes a stored checkpoint.
pub(crate) fn decode(stored: &RawDocument) -> Result<Checkpoint, Failure> {
    Ok(Checkpoint { mark: json(stored.get_str("mark")?)?, tally: json(stored.get_str("tally")?)? })
}
