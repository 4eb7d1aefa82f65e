//! Conflicts: events that contradict others at the same place.

use bson::{Document, doc};
use leftfold::sequence::{Conflict, Resolution};
use leftfold::{Partition, Result};
use mongodb::ClientSession;

use super::record;
use super::totals::Change;
use crate::connection::{Base, Ended, Step, Work};
use crate::encoding::text;
use crate::error::Failure;
use crate::schema::CONFLICTS;
use crate::schema::indexes::OPEN_INDEX;

impl Base {
    /// Lists the conflicts without a resolution, by place.
    pub(super) async fn conflicts(
        &self,
        after: Option<Conflict>,
        most: usize,
    ) -> Result<Vec<Conflict>, Failure> {
        let mut filter = doc! { "open": true };
        if let Some(after) = after {
            filter.insert("_id", doc! { "$gt": record::key_of_conflict(&after) });
        }
        self.list(CONFLICTS, filter, doc! { "_id": 1 }, OPEN_INDEX, most, record::conflict).await
    }

    /// Stores the resolution of a conflict, or deletes the conflict.
    pub(super) async fn resolve(
        &self,
        partition: Partition,
        conflict: &Conflict,
        decided: Option<&Resolution>,
    ) -> Result<bool> {
        let resolve = async {
            let decided = decided.map(text).transpose()?;
            self.transact(Resolve { base: self, partition, key: record::key_of_conflict(conflict), decided })
                .await
        };
        let failed = |failure: Failure| failure.to_error("resolve a conflict in", &self.place);
        match resolve.await.map_err(failed)? {
            Ended::Committed(existed) | Ended::CalledOff(existed) => Ok(existed),
            Ended::Unknown(failure) => Err(failed(failure)),
        }
    }
}

struct Resolve<'a> {
    base: &'a Base,
    partition: Partition,
    key: Document,
    decided: Option<String>,
}

impl Work for Resolve<'_> {
    type Answer = bool;

    async fn run(&self, session: &mut ClientSession) -> Result<Step<bool>, Failure> {
        let Self { base, partition, key, decided } = self;
        base.change_totals(session, *partition, &Change { conflicts: -1, ..Change::default() }).await?;
        let conflicts = base.db.collection::<Document>(CONFLICTS);
        let conflict = doc! { "_id": key, "open": true };
        let changed = match decided {
            Some(decided) => {
                let decided = doc! { "$set": { "decided": decided }, "$unset": { "open": "" } };
                conflicts.update_one(conflict, decided).session(session).await?.matched_count
            }
            None => conflicts.delete_one(conflict).session(session).await?.deleted_count,
        };
        Ok(if changed == 1 { Step::Keep(true) } else { Step::CallOff(false) })
    }
}
