//! Generations of a collection: the set of records that its name stands for.
//!
//! A document in `leftfold.generations` names the live generation and changes only by
//! compare-and-swap. The view follows right after the change. If the process dies in between, the
//! next process that prepares the collection updates the view. The view never shows a partly built
//! generation: it shows the previous one until it changes.

use std::sync::Arc;

use bson::{Document, doc};
use leftfold::documents::{Advance, CollectionWrites, Commit, Generations};
use leftfold::{Collection, Kind, Result};
use mongodb::ClientSession;

use super::collections::{make_view, may_change_view};
use crate::connection::Base;
use crate::error::{Failure, is_duplicate};
use crate::schema::{CHECKPOINTS, GENERATIONS, LEASES, records};

/// The stored state of a collection's generations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LiveGeneration {
    /// The live generation.
    pub(crate) live: u32,
    /// The number of switches so far.
    pub(crate) switches: i64,
}

impl LiveGeneration {
    pub(crate) fn read(stored: &Document) -> Result<Self, Failure> {
        let damaged = |_| Failure::damaged("the generations can't be read");
        let live = u32::try_from(stored.get_i64("live").map_err(damaged)?);
        let live = live.map_err(|error| Failure::damaged(error.to_string()))?;
        Ok(Self { live, switches: stored.get_i64("switches").map_err(damaged)? })
    }
}

impl Base {
    /// Reads the generations of a collection.
    pub(crate) async fn generations(&self, collection: &Collection) -> Result<Generations, Failure> {
        let found = self.stored_generations(collection, None).await?;
        let Some(found) = found else { return Ok(Generations::default()) };
        let known = found.get_str("known").map_err(|error| Failure::damaged(error.to_string()))?;
        serde_json::from_str(known).map_err(|error| Failure::damaged(error.to_string()))
    }

    async fn stored_generations(
        &self,
        collection: &Collection,
        session: Option<&mut ClientSession>,
    ) -> Result<Option<Document>, Failure> {
        let generations = self.db.collection::<Document>(GENERATIONS);
        let base = collection.base();
        let find = generations.find_one(doc! { "_id": base.as_str() });
        Ok(match session {
            Some(session) => find.session(session).await?,
            None => find.await?,
        })
    }

    /// Reads which generation of a collection is live.
    pub(crate) async fn live_generation(&self, collection: &Collection) -> Result<LiveGeneration, Failure> {
        let found = self.stored_generations(collection, None).await?;
        found.as_ref().map_or_else(|| Ok(LiveGeneration::default()), LiveGeneration::read)
    }

    /// Returns the collection with an explicit generation: the live one if it names none.
    pub(crate) async fn named(&self, collection: &Collection) -> Result<Collection, Failure> {
        if collection.names_generation() {
            return Ok(collection.clone());
        }
        Ok(collection.generation(self.live_generation(collection).await?.live))
    }

    /// Does the same as [`Base::named`] in a transaction, always with the live generation.
    pub(crate) async fn named_in(
        &self,
        session: &mut ClientSession,
        collection: &Collection,
    ) -> Result<Collection, Failure> {
        let found = self.stored_generations(collection, Some(session)).await?;
        let found = found.as_ref().map_or_else(|| Ok(LiveGeneration::default()), LiveGeneration::read)?;
        Ok(collection.generation(found.live))
    }

    /// Returns the commit with explicit generations.
    pub(crate) async fn named_all(&self, commit: Arc<Commit>) -> Result<Arc<Commit>, Failure> {
        let names = commit.changes.iter().map(|changes| &changes.collection);
        if names.chain(commit.advance.iter().map(|step| &step.projection)).all(Collection::names_generation) {
            return Ok(commit);
        }
        let advance = match &commit.advance {
            Some(step) => Some(Advance { projection: self.named(&step.projection).await?, ..step.clone() }),
            None => None,
        };
        let mut changes = Vec::with_capacity(commit.changes.len());
        for CollectionWrites { collection, writes } in &commit.changes {
            changes
                .push(CollectionWrites { collection: self.named(collection).await?, writes: writes.clone() });
        }
        Ok(Arc::new(Commit { advance, changes }))
    }

    /// Stores the generations of a collection, if their revision is still `seen`. The view follows
    /// a switch.
    pub(super) async fn put_generations(
        &self,
        collection: &Collection,
        seen: u64,
        next: &Generations,
    ) -> Result<bool> {
        // Refuse a switch if the user may not change the view, because readers would keep seeing
        // the old generation.
        if next.switching.is_some() {
            may_change_view(self, &collection.base()).await?;
        }
        let doing = "store the generations of a collection in";
        let is_stored = self.run(doing, self.store_generations(collection, seen, next)).await?;
        if is_stored {
            self.board.switched();
            point!("generation-kept");
            make_view(self, &collection.base()).await?;
        }
        Ok(is_stored)
    }

    async fn store_generations(
        &self,
        collection: &Collection,
        seen: u64,
        next: &Generations,
    ) -> Result<bool, Failure> {
        let number = |number: u64| i64::try_from(number).map_err(|error| Failure::damaged(error.to_string()));
        let base = collection.base();
        let known = serde_json::to_string(next).map_err(|error| Failure::damaged(error.to_string()))?;
        let live = i64::from(next.live.number);
        let is_switched = doc! { "$ne": [{ "$ifNull": ["$live", 0_i64] }, live] };
        let put = [
            doc! { "$set": { "switches": { "$add": [
                { "$ifNull": ["$switches", 0_i64] },
                { "$cond": [is_switched, 1_i64, 0_i64] },
            ] } } },
            doc! { "$set": {
                "revision": number(next.revision)?,
                "live": live,
                "known": { "$literal": known },
            } },
        ];
        let generations = self.db.collection::<Document>(GENERATIONS);
        let guard = doc! { "_id": base.as_str(), "revision": number(seen)? };
        match generations.update_one(guard, put.to_vec()).upsert(seen == 0).await {
            Ok(updated) => Ok(updated.matched_count == 1 || updated.upserted_id.is_some()),
            Err(error) if is_duplicate(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes a generation that is not live.
    pub(crate) async fn drop_generation(&self, generation: &Collection) -> Result<()> {
        let doing = "delete a generation of a collection in";
        let live = self.run(doing, self.named(&generation.base())).await?;
        if live == *generation {
            let refused = Failure::new(
                Kind::Invalid,
                "switch to another generation first",
                format!("{generation} is the live generation"),
            );
            return Err(refused.to_error(doing, &self.place));
        }
        // The view must not show a deleted generation.
        make_view(self, &generation.base()).await?;
        let stored = generation.stored(0);
        let remove = async {
            // Delete the checkpoint first, so that no worker folds the generation any more.
            for name in [CHECKPOINTS, LEASES] {
                let own = self.db.collection::<Document>(name);
                own.delete_one(doc! { "_id": stored.as_str() }).await?;
            }
            for part in [generation.clone(), generation.streams()] {
                self.db.collection::<Document>(&records(&part)).drop().await?;
            }
            Ok(())
        };
        self.run(doing, remove).await
    }
}
