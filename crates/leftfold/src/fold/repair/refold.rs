//! Refolds of documents from their first event.

use std::collections::{BTreeMap, BTreeSet};

use super::RepairOutcome;
use super::attempts::{Attempts, DocumentRepair, Repairs, one};
use crate::documents::{DocumentWrite, Parked, Record};
use crate::env::Env;
use crate::error::Result;
use crate::event::{DocumentId, Revision};
use crate::fold::Folder;
use crate::fold::Projection;
use crate::fold::batch::FoldState;
use crate::fold::replay::Replay;
use crate::fold::slot::DocumentSlot;
use crate::mark::Mark;
use crate::mutant;
use crate::store::Store;

/// The number of documents to refold in one read of the log.
const AT_ONCE: usize = 500;

impl<P: Projection> Folder<P> {
    /// Refolds one document from its first event and replaces it under guard. If the fold fails,
    /// the document stays as it is.
    pub(crate) async fn refold<S: Store>(
        &self,
        store: &S,
        env: &dyn Env,
        id: &DocumentId,
    ) -> Result<RepairOutcome> {
        let mut attempts = Attempts::new(env);
        loop {
            let ids = std::slice::from_ref(id);
            let repairs = self.refolded(store, env, ids, None, &mut attempts, false).await?;
            let outcome =
                repairs.documents.first().map_or(RepairOutcome::Repaired, |repair| repair.outcome.clone());
            if outcome != RepairOutcome::Repaired || attempts.wrote(store, self, &repairs).await?.is_empty() {
                return Ok(outcome);
            }
        }
    }

    /// Refolds the documents of a parked stream as if it were not parked. Documents that fail are
    /// parked, so that the others need not wait. Returns the error that prevents the repair of all
    /// of them, if any.
    pub(super) async fn refold_all<S: Store>(
        &self,
        store: &S,
        env: &dyn Env,
        documents: BTreeSet<DocumentId>,
        release: &Parked,
    ) -> Result<Option<String>> {
        let documents: Vec<_> = documents.into_iter().collect();
        for chunk in documents.chunks(AT_ONCE) {
            let mut attempts = Attempts::new(env);
            let mut left = chunk.to_vec();
            while !left.is_empty() {
                let repairs = self.refolded(store, env, &left, Some(release), &mut attempts, false).await?;
                if let Some(DocumentRepair {
                    outcome: RepairOutcome::StillFailing(stray), write: None, ..
                }) = repairs.documents.first()
                {
                    return Ok(Some(stray.clone()));
                }
                left = attempts.wrote(store, self, &repairs).await?;
            }
        }
        Ok(None)
    }

    /// Refolds documents from their first event, and returns the result and the write of each. A
    /// document whose fold fails stays as it is, with a write that parks it. Parked streams that
    /// can be decoded by now are marked as being retried. An earlier worker that could decode them
    /// may already have folded them.
    pub(super) async fn refolded<S: Store>(
        &self,
        store: &S,
        env: &dyn Env,
        ids: &[DocumentId],
        release: Option<&Parked>,
        attempts: &mut Attempts,
        dry_run: bool,
    ) -> Result<Repairs> {
        loop {
            let (repairs, aside) = self.refolded_without(store, env, ids, release).await?;
            let mut taken_up = false;
            for parked in aside.iter().filter(|_| !dry_run) {
                mutant!(TakenUpIgnored => break);
                let waiting = self.documents_waiting(store, parked).await?;
                if !waiting.is_ok_and(|waiting| ids.iter().any(|id| waiting.contains(id))) {
                    continue;
                }
                let row = one(store, &self.collection.streams(), &DocumentId::from(&parked.stream)).await?;
                if let Some(row) = row.filter(|row| row.header.parked.is_some()) {
                    self.take_up(store, row, attempts).await?;
                    taken_up = true;
                }
            }
            if !taken_up {
                return Ok(repairs);
            }
        }
    }

    /// Refolds documents without the parked streams, and returns these streams too.
    async fn refolded_without<S: Store>(
        &self,
        store: &S,
        env: &dyn Env,
        ids: &[DocumentId],
        release: Option<&Parked>,
    ) -> Result<(Repairs, Vec<Parked>)> {
        let mut state = FoldState { taken_up: Some(Mark::default()), ..FoldState::careful(Mark::default()) };
        mutant!(TakenUpIgnored => state.taken_up = release.map(|_| Mark::default()));
        // Read the checkpoint first: later commits of the projector move the documents' own marks.
        let mut through = store.checkpoint(&self.collection).await?.mark;
        let mut stored = BTreeMap::new();
        for record in store.load_current(&self.collection, ids.to_vec()).await? {
            through.merge(&record.header.mark);
            if let Some(parked) = &record.header.parked {
                through.merge(&parked.through);
            }
            stored.insert(record.id.clone(), record);
        }
        for id in ids {
            let header = stored.get(id).map(|record| record.header.clone());
            state.documents.insert(id.clone(), DocumentSlot::refolded(header));
        }
        if let Some(parked) = release {
            through.merge(&parked.through);
        }
        if self.routes_by_stream() {
            for id in ids {
                state.progress = Mark::default();
                let whole = self.replay_of(id, Revision(0), Mark::default(), through.clone(), store)?;
                self.replay(store, env, &mut state, whole).await?;
            }
        } else if !ids.is_empty() {
            loop {
                let range = Replay::Range { from: state.progress.clone(), through: through.clone() };
                self.replay(store, env, &mut state, range).await?;
                // A stream that is being retried may have waiting events beyond this point. The
                // worker that unparks it relies on them being folded.
                match &state.taken_up {
                    Some(beyond) if !through.covers(beyond) => through.merge(beyond),
                    _ => break,
                }
            }
        }
        let mut done = Repairs::default();
        for id in ids {
            // An earlier worker could decode this event and folded it. Continuing without it would
            // lose it.
            if let Some(stray) = &state.stray {
                done.push(id.clone(), RepairOutcome::StillFailing(stray.clone()), None);
                continue;
            }
            let Some(mut slot) = state.documents.take(id) else { continue };
            let failure = slot.loss().and_then(|loss| loss.failure.clone());
            let said = failure.as_ref().map(|failure| {
                format!("{id}: {} (revision {} of {})", failure.error, failure.revision, failure.stream)
            });
            let outcome = said.map_or(RepairOutcome::Repaired, RepairOutcome::StillFailing);
            let write = match (failure, stored.remove(id)) {
                (Some(failure), Some(record)) => Some(parked_as_it_is(record, failure, &through)),
                (Some(_), None) => {
                    slot.park(1);
                    slot.write(id)
                }
                // No event ever concerned this document. Otherwise even a deleted document keeps
                // its mark.
                (None, None) if *slot.mark() == Mark::default() => None,
                (None, record) => {
                    if let Some(record) = record {
                        slot.replace(&record.header.mark);
                    }
                    slot.set_dirty();
                    slot.write(id)
                }
            };
            done.push(id.clone(), outcome, write);
        }
        let mut aside: Vec<_> = state.streams.slots().filter_map(|slot| slot.parked().cloned()).collect();
        aside.sort_by(|a, b| a.stream.cmp(&b.stream));
        done.streams = state.set_aside();
        Ok((done, aside))
    }
}

/// Parks a document that could not be refolded. It keeps its current content and waits to be
/// refolded.
fn parked_as_it_is(record: Record, failure: Parked, through: &Mark) -> DocumentWrite {
    let mut header = record.header.clone();
    let was = header.parked.take();
    let same = was.filter(|was| (was.partition, was.position) == (failure.partition, failure.position));
    let (since, attempts) = same.map_or((failure.since, 1), |was| (was.since, was.attempts + 1));
    let through = through.lanes().filter(|(lane, _)| lane.partition().is_some());
    let through = through.map(|(lane, number)| (lane.clone(), number)).collect();
    // The content of the body is uncertain: streams that were parked for it may be under retry by
    // now.
    let from = Mark::default();
    header.parked = Some(Box::new(Parked { since, attempts, from, through, anew: true, ..failure }));
    DocumentWrite {
        expected: Some(record.header),
        record: Record { id: record.id, header, body: record.body },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::Header;
    use crate::event::Partition;
    use crate::mark::Lane;

    fn mark(lanes: &[(u16, u64)]) -> Mark {
        lanes.iter().map(|(partition, number)| (Lane::from(Partition(*partition)), *number)).collect()
    }

    fn parked(from: &[(u16, u64)], through: &[(u16, u64)]) -> Parked {
        Parked { from: mark(from), through: mark(through), ..Parked::example() }
    }

    fn record() -> Record {
        Record { id: DocumentId::new("x").unwrap(), header: Header::default(), body: None }
    }

    /// The body may hold any part of the earlier events, so no waiting read may accept it.
    #[test]
    fn one_that_could_not_be_folded_anew_answers_for_nothing() {
        let header = Header { mark: mark(&[(1, 9)]), parked: Some(parked(&[(1, 6)], &[(1, 9)]).into()) };
        let record = Record { header, ..record() };
        let write = parked_as_it_is(record.clone(), parked(&[(1, 6)], &[]), &mark(&[(1, 9), (2, 4)]));
        assert_eq!(write.expected, Some(record.header.clone()));
        assert_eq!(write.record.header.mark, record.header.mark);
        let parked = write.record.header.parked.unwrap();
        assert_eq!((&parked.from, parked.anew, parked.attempts), (&Mark::default(), true, 2));
        assert_eq!(parked.through, mark(&[(1, 9), (2, 4)]));
    }
}
