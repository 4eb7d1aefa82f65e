//! Checks of the final state.

use std::collections::{BTreeSet, HashMap};

use leftfold::{Bookmark, Collection, Documents, Log, Result};

use super::fold::{ParkedStreams, listed, same};
use super::state::Checker;
use crate::notes::{BY_CONTENT, BY_STREAM};

impl Checker {
    /// Checks the final state, after all repairs. Nothing is parked, every document is the naive
    /// fold of all its events, and the log has all acknowledged events.
    pub async fn check_end(&self, store: &(impl Log + Documents), acknowledged: &[Bookmark]) -> Result<()> {
        self.read_log(store).await?;
        for name in [BY_STREAM, BY_CONTENT] {
            let collection = Collection::new(name)?;
            for parked in [collection.clone(), collection.streams()] {
                for record in store.parked(&parked, None, usize::MAX).await? {
                    self.violated(format!("I10: {} in {parked} is still parked", record.id));
                }
            }
            let heads = store.heads().await?;
            let at = store.checkpoint(&collection).await?.mark;
            if !at.covers(&heads) {
                self.violated(format!(
                    "I10: the checkpoint of {name} is at {at}, and the log ends at {heads}"
                ));
            }
            let records = store.scan(&collection, None, usize::MAX).await?;
            let mut state = self.state();
            let stored: HashMap<_, _> = records.iter().map(|record| (&record.id, listed(record))).collect();
            let ids = state.routed.keys().filter(|(projection, _)| *projection == name).map(|(_, id)| id);
            let ids: BTreeSet<_> = ids.chain(stored.keys().copied()).cloned().collect();
            for id in ids {
                let expected = state.naive(name, &id, &heads, &ParkedStreams::new());
                let actual = stored.get(&id).cloned().unwrap_or_default();
                if !same(&expected, &actual, &heads) {
                    state
                        .violations
                        .push(format!("I1: {id} in {name} is {actual:?} and should be {expected:?}"));
                }
            }
        }
        let mut state = self.state();
        for bookmark in acknowledged {
            if !state.bookmarks.contains(bookmark) {
                state.violations.push(format!("I6: {bookmark} was acknowledged and is not in the log"));
            }
        }
        Ok(())
    }
}
