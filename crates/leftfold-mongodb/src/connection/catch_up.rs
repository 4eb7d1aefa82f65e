//! Reads that show every acknowledged write, also right after an election.

use std::sync::PoisonError;
use std::time::Duration;

use bson::{RawDocumentBuf, doc};
use mongodb::options::ReadConcern;

use super::base::Base;
use crate::error::Failure;
use crate::schema::META;

impl Base {
    /// Waits until reads show every acknowledged write. A newly elected primary does not know yet
    /// which writes a majority has, and shows fewer. This runs one linearizable read per primary,
    /// because that read costs a write. Repairing documents beside workers must stay fast.
    pub(crate) async fn catch_up(&self) -> Result<(), Failure> {
        let hello = self.client.database("admin").run_command(doc! { "hello": 1 }).await?;
        let elected = hello.get_object_id("electionId").ok();
        let known = || self.caught_up.lock().unwrap_or_else(PoisonError::into_inner);
        if elected.is_some() && *known() == elected {
            return Ok(());
        }
        let metas = self.db.collection::<RawDocumentBuf>(META);
        let find = metas.find_one(doc! { "_id": "log" }).read_concern(ReadConcern::linearizable());
        find.max_time(Duration::from_secs(5)).await?;
        *known() = elected;
        Ok(())
    }

    /// Runs a read that must not be older than what this process already knows. Repeats it after an
    /// election, because the new primary may have shown less than its predecessor.
    pub(crate) async fn read_current<T, F>(&self, read: impl Fn() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let election = || *self.caught_up.lock().unwrap_or_else(PoisonError::into_inner);
        let before = election();
        let found = read().await?;
        self.catch_up().await?;
        if before.is_some() && election() == before { Ok(found) } else { read().await }
    }
}
