//! Retries of parked documents.

use std::collections::{BTreeMap, BTreeSet};

use super::RepairOutcome;
use super::attempts::{Attempts, DocumentRepair, Repairs};
use crate::documents::{Collection, Parked, Record};
use crate::env::Env;
use crate::error::Result;
use crate::event::{DocumentId, Revision};
use crate::fold::Folder;
use crate::fold::Projection;
use crate::fold::batch::FoldState;
use crate::fold::replay::Replay;
use crate::fold::slot::DocumentSlot;
use crate::mark::{Lane, Mark};
use crate::mutant;
use crate::store::Store;

impl<P: Projection> Folder<P> {
    /// Folds parked documents from their failing events on, and unparks them in one commit. If they
    /// are not routed by stream, it reads the log once for all. `tell` receives the result of each.
    pub(crate) async fn retry_documents<S: Store>(
        &self,
        store: &S,
        env: &dyn Env,
        ids: Vec<DocumentId>,
        dry_run: bool,
        tell: &mut (dyn FnMut(DocumentId, RepairOutcome) + Send),
    ) -> Result<()> {
        let mut attempts = Attempts::new(env);
        // The results of writes that may have succeeded without an answer.
        let mut before = BTreeMap::new();
        let mut left = ids;
        while !left.is_empty() {
            let (parked, whole) = parked_among(store, &self.collection, &left).await?;
            for id in whole {
                let outcome = before.remove(&id).unwrap_or(RepairOutcome::NotParked);
                tell(id, outcome);
            }
            let (mut anew, mut parked): (Vec<_>, Vec<_>) =
                parked.into_iter().partition(|(_, parked)| parked.anew);
            mutant!(RefoldFromFailure => parked.append(&mut anew));
            let anew: Vec<_> = anew.into_iter().map(|(record, _)| record.id).collect();
            left.clear();
            let refolded = self.refolded(store, env, &anew, None, &mut attempts, dry_run).await?;
            for repairs in [refolded, self.retried(store, env, parked).await?] {
                let again = if dry_run { Vec::new() } else { attempts.wrote(store, self, &repairs).await? };
                let changed: BTreeSet<_> = again.iter().collect();
                for DocumentRepair { id, outcome, .. } in repairs.documents {
                    if changed.contains(&id) {
                        before.insert(id, outcome);
                    } else {
                        tell(id, outcome);
                    }
                }
                left.extend(again);
            }
        }
        Ok(())
    }

    /// Folds parked documents on from their failing events, and returns the result and the write of
    /// each.
    async fn retried<S: Store>(
        &self,
        store: &S,
        env: &dyn Env,
        parked: Vec<(Record, Box<Parked>)>,
    ) -> Result<Repairs> {
        let mut state = self.replayed(store, env, &parked).await?;
        let mut done = Repairs::default();
        for (record, parked) in parked {
            let id = record.id;
            // An earlier worker could decode this event and folded it. Continuing without it would
            // lose it.
            if let Some(stray) = &state.stray {
                done.push(id, RepairOutcome::StillFailing(stray.clone()), None);
                continue;
            }
            let Some(mut slot) = state.documents.take(&id) else { continue };
            let failure = slot.loss().and_then(|loss| loss.error.as_ref()).map(ToString::to_string);
            slot.park(parked.attempts + 1);
            if let Some(still) = slot.parked_mut().filter(|still| still.position == parked.position) {
                still.since = parked.since;
            }
            let write = slot.write(&id);
            done.push(id, failure.map_or(RepairOutcome::Repaired, RepairOutcome::StillFailing), write);
        }
        done.streams = state.set_aside();
        Ok(done)
    }

    /// Returns a state with parked documents, folded on from their failing events.
    async fn replayed<S: Store>(
        &self,
        store: &S,
        env: &dyn Env,
        parked: &[(Record, Box<Parked>)],
    ) -> Result<FoldState<P::Document>> {
        let (from, through) = reading(parked);
        let mut state = FoldState::careful(from.clone());
        for (record, _) in parked {
            state.documents.insert(record.id.clone(), DocumentSlot::released(record.clone()));
        }
        if !self.routes_by_stream() {
            self.replay(store, env, &mut state, Replay::Range { from, through }).await?;
            return Ok(state);
        }
        for (record, parked) in parked {
            // Each stream is read separately: the progress of the previous one does not apply to
            // this one.
            state.progress = parked.from.clone();
            let after = Revision(parked.revision.0.saturating_sub(1));
            let replay = self.replay_of(&record.id, after, Mark::default(), parked.through.clone(), store)?;
            self.replay(store, env, &mut state, replay).await?;
        }
        Ok(state)
    }
}

/// Returns the range of the log to read for all of these together. Every document sees every event
/// that is read. Each lane therefore begins at the lowest mark of any document, which is 0 if one
/// has folded nothing of it.
fn reading(parked: &[(Record, Box<Parked>)]) -> (Mark, Mark) {
    let mut through = Mark::default();
    for (_, parked) in parked {
        through.merge(&parked.through);
    }
    let first =
        |lane: &Lane| parked.iter().map(|(_, parked)| parked.from.get(lane)).min().unwrap_or_default();
    let from = through.lanes().map(|(lane, _)| (lane.clone(), first(lane))).collect();
    (from, through)
}

/// Splits documents into the parked ones, with the reasons, and the ids of the others.
async fn parked_among<S: Store>(
    store: &S,
    collection: &Collection,
    ids: &[DocumentId],
) -> Result<(Vec<(Record, Box<Parked>)>, Vec<DocumentId>)> {
    let records = store.load_current(collection, ids.to_vec()).await?;
    let parked: Vec<_> = records
        .into_iter()
        .filter_map(|record| record.header.parked.clone().map(|parked| (record, parked)))
        .collect();
    let is_parked = |id: &&DocumentId| parked.iter().any(|(record, _)| record.id == **id);
    let whole = ids.iter().filter(|id| !is_parked(id)).cloned().collect();
    Ok((parked, whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::Header;
    use crate::event::Partition;

    fn mark(lanes: &[(u16, u64)]) -> Mark {
        lanes.iter().map(|(partition, number)| (Lane::from(Partition(*partition)), *number)).collect()
    }

    fn parked(from: &[(u16, u64)], through: &[(u16, u64)]) -> Parked {
        Parked { from: mark(from), through: mark(through), ..Parked::example() }
    }

    fn record() -> Record {
        Record { id: DocumentId::new("x").unwrap(), header: Header::default(), body: None }
    }

    /// A document that began where another left off would lose the events in between.
    #[test]
    fn what_is_read_for_several_begins_where_the_first_of_them_left_off() {
        let one = (record(), parked(&[(1, 6), (2, 10)], &[(1, 9)]).into());
        let other = (record(), parked(&[(1, 8)], &[(1, 8), (2, 12)]).into());
        for both in [[one.clone(), other.clone()], [other, one]] {
            let (from, through) = reading(&both);
            assert_eq!((from.get(&Lane::from(Partition(1))), through), (6, mark(&[(1, 9), (2, 12)])));
            assert_eq!(from.get(&Lane::from(Partition(2))), 0, "the other has folded nothing there");
        }
    }
}
