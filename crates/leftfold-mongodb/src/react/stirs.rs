//! Wake-ups for those who run tasks: a number that grows, and the [board](crate::watch) that tells of it.

use std::sync::Arc;
use std::time::Duration;

use bson::{Document, doc};
use mongodb::options::ReturnDocument;
use tokio::time::{Instant, timeout_at};

use crate::error::{Failure, is_duplicate};
use crate::schema::STIRS;
use crate::watch::Scope;
use crate::{Base, patiently};

/// The only document there.
const TASKS: &str = "tasks";

impl Base {
    /// Raises the number.
    pub(super) async fn stir(&self) -> Result<(), Failure> {
        let stirs = self.db.collection::<Document>(STIRS);
        let raise = doc! { "$inc": { "stirs": 1_i64 } };
        loop {
            let raised = stirs.find_one_and_update(doc! { "_id": TASKS }, raise.clone());
            match raised.upsert(true).return_document(ReturnDocument::After).await {
                Ok(raised) => {
                    let stirs = raised.and_then(|raised| raised.get_i64("stirs").ok());
                    self.board.stirred(stirs.unwrap_or(0).unsigned_abs());
                    return Ok(());
                }
                // Somebody else has made it at the same time.
                Err(error) if is_duplicate(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The number as it is stored.
    pub(crate) async fn stirs(&self) -> Result<u64, Failure> {
        let found = self.db.collection::<Document>(STIRS).find_one(doc! { "_id": TASKS }).await?;
        Ok(found.and_then(|found| found.get_i64("stirs").ok()).unwrap_or(0).unsigned_abs())
    }

    /// Waits until the number is another one, or for so long. Answers with the number.
    pub(super) async fn stirred(self: &Arc<Self>, since: u64, patience: Duration) -> Result<u64, Failure> {
        let end = Instant::now().checked_add(patience);
        let (_waiting, mut known) = self.wait(Scope::Stirs);
        let (stirs, is_told) = {
            let known = known.borrow_and_update();
            (known.stirs(), known.is_told(Scope::Stirs))
        };
        // Where the board is told of every step, the next one comes to it.
        let stirs = if is_told { stirs } else { patiently(self.stirs()).await? };
        if stirs != since {
            return Ok(stirs);
        }
        let other = known.wait_for(|known| known.stirs() > since);
        let heard = match end {
            Some(end) => timeout_at(end, other).await.ok(),
            None => Some(other.await),
        };
        // The board outlives the wait, as this handle does.
        Ok(heard.and_then(Result::ok).map_or(since, |known| known.stirs()))
    }
}
