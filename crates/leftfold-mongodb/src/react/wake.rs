//! Wake-ups for runners: a counter, and the [board](crate::watch) that publishes it.

use std::sync::Arc;
use std::time::Duration;

use bson::{Document, doc};
use mongodb::options::ReturnDocument;
use tokio::time::{Instant, timeout_at};

use crate::connection::{Base, with_timeout};
use crate::error::{Failure, is_duplicate};
use crate::schema::WAKES;
use crate::watch::Scope;

/// The id of the only document in the collection.
const TASKS: &str = "tasks";

impl Base {
    /// Increments the counter.
    pub(super) async fn wake(&self) -> Result<(), Failure> {
        let wakes = self.db.collection::<Document>(WAKES);
        let raise = doc! { "$inc": { "wakes": 1_i64 } };
        loop {
            let raised = wakes.find_one_and_update(doc! { "_id": TASKS }, raise.clone());
            match raised.upsert(true).return_document(ReturnDocument::After).await {
                Ok(raised) => {
                    let wakes = raised.and_then(|raised| raised.get_i64("wakes").ok());
                    self.board.is_woken(wakes.unwrap_or(0).unsigned_abs());
                    return Ok(());
                }
                // Another client created it at the same time.
                Err(error) if is_duplicate(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the stored counter.
    pub(crate) async fn wakes(&self) -> Result<u64, Failure> {
        let found = self.db.collection::<Document>(WAKES).find_one(doc! { "_id": TASKS }).await?;
        Ok(found.and_then(|found| found.get_i64("wakes").ok()).unwrap_or(0).unsigned_abs())
    }

    /// Waits until the counter differs from `since`, or until the timeout. Returns the counter.
    pub(super) async fn wait_for_wake(
        self: &Arc<Self>,
        since: u64,
        patience: Duration,
    ) -> Result<u64, Failure> {
        let end = Instant::now().checked_add(patience);
        let (_waiting, mut known) = self.wait(Scope::Wakes);
        let (wakes, is_complete) = {
            let known = known.borrow_and_update();
            (known.wakes(), known.covers(Scope::Wakes))
        };
        // If the board receives every step, it also receives the next one: there is no need to
        // read.
        let wakes = if is_complete { wakes } else { with_timeout(self.wakes()).await? };
        if wakes != since {
            return Ok(wakes);
        }
        let other = known.wait_for(|known| known.wakes() > since);
        let woken = match end {
            Some(end) => timeout_at(end, other).await.ok(),
            None => Some(other.await),
        };
        // The wait can't fail: this handle keeps the board alive.
        Ok(woken.and_then(Result::ok).map_or(since, |known| known.wakes()))
    }
}
