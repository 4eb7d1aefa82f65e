//! The simulated store's operations for documents.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use leftfold::documents::{Checkpoint, Claim, Commit, CommitOutcome, DocumentCounts, Generations, Record};
use leftfold::{Collection, DocumentId, Documents, Error, Kind, Mark, Result, mutant};

use super::calls::LATE;
use super::handle::SimStore;
use super::sabotage;
use crate::faults::Fault;

impl Documents for SimStore {
    async fn prepare(&self, collection: &Collection) -> Result<()> {
        self.shared.inner.prepare(collection).await
    }

    async fn load(&self, collection: &Collection, ids: Vec<DocumentId>) -> Result<Vec<Record>> {
        self.answer("load", self.load_past(collection, ids)).await
    }

    async fn load_current(&self, collection: &Collection, ids: Vec<DocumentId>) -> Result<Vec<Record>> {
        mutant!(StaleStreams => return self.load(collection, ids).await);
        self.answer("load current", self.shared.inner.load(collection, ids)).await
    }

    async fn commit(&self, commit: Arc<Commit>) -> Result<CommitOutcome> {
        self.answer("commit", async {
            let unknown = || Ok(sabotage::unknown_commit());
            if self.strikes(Fault::LostUnknown) {
                return unknown();
            }
            if self.strikes(Fault::Storm) {
                return Ok(self.storm(&commit));
            }
            if self.strikes(Fault::Delayed) {
                self.write_within(LATE, commit);
                return unknown();
            }
            mutant!(AcknowledgeEarly => return Ok(sabotage::acknowledged_early(self, commit)));
            let outcome = self.write(&commit).await?;
            self.takes(Duration::from_millis(1)).await;
            if self.strikes(Fault::AppliedUnknown) {
                return unknown();
            }
            sabotage::outcome(self, &commit, outcome).await
        })
        .await
    }

    async fn scan(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> Result<Vec<Record>> {
        self.answer("scan", self.shared.inner.scan(collection, after, limit)).await
    }

    async fn parked(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> Result<Vec<Record>> {
        self.answer("list parked", self.shared.inner.parked(collection, after, limit)).await
    }

    async fn count(&self, collection: &Collection) -> Result<DocumentCounts> {
        self.answer("count", self.shared.inner.count(collection)).await
    }

    async fn checkpoint(&self, projection: &Collection) -> Result<Checkpoint> {
        self.answer("read checkpoint", self.shared.inner.checkpoint(projection)).await
    }

    async fn advanced(&self, projection: &Collection, from: &Mark) -> Result<Mark> {
        self.answer("wait for progress", self.shared.inner.advanced(projection, from)).await
    }

    async fn claim(&self, projection: &Collection, owner: &str, lease: Duration) -> Result<Claim> {
        self.answer("claim", self.claim_or_steal(projection, owner, lease)).await
    }

    async fn release(&self, projection: &Collection, owner: &str) -> Result<()> {
        self.answer("release", self.shared.inner.release(projection, owner)).await
    }

    async fn generations(&self, collection: &Collection) -> Result<Generations> {
        self.answer("read generations", self.shared.inner.generations(collection)).await
    }

    async fn put_generations(&self, collection: &Collection, seen: u64, next: Generations) -> Result<bool> {
        self.answer("store generations", async {
            let unknown = || Err(Error::new(Kind::Unknown, "store generations: lost the connection"));
            if self.strikes(Fault::LostUnknown) {
                return unknown();
            }
            let before = self.shared.inner.generations(collection).await?.live.number;
            let after = next.live.number;
            let is_kept = self.shared.inner.put_generations(collection, seen, next).await?;
            if is_kept && before != after {
                self.shared.trace.note(|| format!("{}: {collection} from {before} to {after}", self.name));
                let (before, after) = (collection.generation(before), collection.generation(after));
                self.shared
                    .checker
                    .check_switch(&self.shared.inner, &before, &after, self.shared.atomic)
                    .await?;
            }
            if self.strikes(Fault::AppliedUnknown) { unknown() } else { Ok(is_kept) }
        })
        .await
    }

    async fn drop_generation(&self, generation: &Collection) -> Result<()> {
        self.answer("drop a generation", self.shared.inner.drop_generation(generation)).await
    }
}

impl SimStore {
    /// Returns the current or an earlier state of documents.
    async fn load_past(&self, collection: &Collection, ids: Vec<DocumentId>) -> Result<Vec<Record>> {
        let mut found = Vec::new();
        for id in ids {
            let now = self.shared.inner.load(collection, vec![id.clone()]).await?.pop();
            let before = {
                let mut past = self.shared.past.lock().unwrap_or_else(PoisonError::into_inner);
                past.insert((collection.clone(), id), now.clone())
            };
            found.extend(match before {
                Some(before) if self.strikes(Fault::Stale) => before,
                _ => now,
            });
        }
        Ok(found)
    }
}
