//! Checks of each write and of each switch.

use leftfold::documents::Commit;
use leftfold::{Collection, Documents, Log, Result};

use super::collections::{folded, is_there, parked_ranges, parked_streams};
use super::state::Checker;
use crate::notes::{BY_CONTENT, BY_STREAM};

impl Checker {
    /// Checks the result of a commit while nothing else runs, and returns the new violations.
    pub async fn check_commit(&self, store: &(impl Log + Documents), commit: &Commit) -> Result<Vec<String>> {
        let before = self.state().violations.len();
        self.read_log(store).await?;
        for changes in &commit.changes {
            if !is_there(store, &changes.collection).await? {
                continue;
            }
            let ids = changes.writes.iter().map(|write| write.record.id.clone()).collect();
            let records = store.load_current(&changes.collection, ids).await?;
            let parked = parked_streams(store, &changes.collection).await?;
            let mut state = self.state();
            for record in &records {
                state.check_progress(&changes.collection, record);
                state.check_fold(&changes.collection, record, &parked);
            }
        }
        if let Some(advance) = &commit.advance
            && is_there(store, &advance.projection).await?
        {
            self.check_checkpoint(store, &advance.projection).await?;
        }
        Ok(self.state().violations[before..].to_vec())
    }

    /// Checks that a new live generation is as far as the previous one, so that no reader goes
    /// back. Without atomic commits it skips the documents. A worker may have written those of a
    /// batch whose checkpoint came too late.
    pub async fn check_switch(
        &self,
        store: &impl Documents,
        before: &Collection,
        after: &Collection,
        atomic: bool,
    ) -> Result<()> {
        let (was, is) = (store.checkpoint(before).await?.mark, store.checkpoint(after).await?.mark);
        if !is.covers(&folded(&was)) {
            self.violated(format!("I2: {before}, at {was}, is replaced by {after}, which is at {is}"));
        }
        for record in store.scan(before, None, usize::MAX).await?.iter().filter(|_| atomic) {
            let mark = folded(&record.header.mark);
            if !is.covers(&mark) {
                let id = &record.id;
                self.violated(format!(
                    "I2: {id} in {before} is at {mark}, and the new generation {after} is at {is}"
                ));
            }
        }
        Ok(())
    }

    /// Checks everything stored while others are working, so it sees the data piece by piece.
    pub async fn check_all(&self, store: &(impl Log + Documents)) -> Result<()> {
        for name in [BY_STREAM, BY_CONTENT] {
            let collection = Collection::new(name)?;
            let records = store.scan(&collection, None, usize::MAX).await?;
            self.read_log(store).await?;
            let mut state = self.state();
            for record in &records {
                state.check_progress(&collection, record);
            }
        }
        Ok(())
    }

    /// Checks that a checkpoint never falls and passes no event that is unaccounted for.
    async fn check_checkpoint(&self, store: &(impl Log + Documents), projection: &Collection) -> Result<()> {
        let now = store.checkpoint(projection).await?.mark;
        let passed = self.state().advance_checkpoint(projection, &now);
        if passed.is_empty() {
            return Ok(());
        }
        let parked = parked_ranges(store, projection).await?;
        for (step, ids) in passed {
            if parked
                .get(&step.stream)
                .is_some_and(|(from, through)| (*from..=*through).contains(&step.position))
            {
                continue;
            }
            let records = store.load_current(projection, ids.clone()).await?;
            for id in ids {
                let header = records.iter().find(|record| record.id == id).map(|record| &record.header);
                let done = header.is_some_and(|header| {
                    let parked = header.parked.as_ref().map(|parked| parked.through.position(step.partition));
                    header.mark.position(step.partition) >= step.position || parked >= Some(step.position)
                });
                if !done {
                    let at = step.position;
                    self.violated(format!(
                        "I3: {projection} passed {} at {at}, which {id} has neither folded nor parked",
                        step.name
                    ));
                }
            }
        }
        Ok(())
    }
}
