//! Repair: retries parked documents and streams, and refolds documents, beside the running
//! projector.
//!
//! Every step is a guarded write of single documents, so concurrent work does no harm. If the
//! projector changes a document in between, the repair starts over from the changed document.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::sleep;

use super::Projection;
use super::batch::{FoldState, Folder};
use super::replay::Replay;
use super::slot::DocumentSlot;
use crate::backoff::Backoff;
use crate::documents::{
    Collection, CollectionWrites, Commit, CommitOutcome, DocumentWrite, Header, Parked, Record,
};
use crate::env::Env;
use crate::error::{Error, Kind, Result};
use crate::event::{DocumentId, Revision, StreamId};
use crate::mark::{Lane, Mark};
use crate::planted::{Bug, planted};
use crate::store::Store;

/// The lane of a document's mark that counts how often it was refolded from its first event. A
/// writer that computed from the earlier document therefore finds another mark.
const REFOLDED: &str = "refold";

/// The number of documents to refold in one read of the log.
const AT_ONCE: usize = 500;

/// The result of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mended {
    /// The unit is repaired; on a dry run, it would be.
    Repaired,
    /// The unit still fails, with this error.
    StillFailing(String),
    /// There was nothing to repair.
    NotParked,
}

impl<P: Projection> Folder<P> {
    /// Folds parked documents from their failing events on, and unparks them in one commit. If they
    /// are not routed by stream, it reads the log once for all. `tell` receives the result of each.
    pub(crate) async fn retry_documents<S: Store>(
        &self,
        store: &S,
        env: &dyn Env,
        ids: Vec<DocumentId>,
        dry_run: bool,
        tell: &mut (dyn FnMut(DocumentId, Mended) + Send),
    ) -> Result<()> {
        let mut attempts = Attempts::new(env);
        // The results of writes that may have succeeded without an answer.
        let mut before = BTreeMap::new();
        let mut left = ids;
        while !left.is_empty() {
            let (parked, whole) = parked_among(store, &self.collection, &left).await?;
            for id in whole {
                let mended = before.remove(&id).unwrap_or(Mended::NotParked);
                tell(id, mended);
            }
            let (anew, parked): (Vec<_>, Vec<_>) =
                parked.into_iter().partition(|(_, parked)| parked.anew && !planted(Bug::RefoldFromFailure));
            let anew: Vec<_> = anew.into_iter().map(|(record, _)| record.id).collect();
            left.clear();
            let refolded = self.refolded(store, env, &anew, None, &mut attempts, dry_run).await?;
            for mends in [refolded, self.retried(store, env, parked).await?] {
                let again = if dry_run { Vec::new() } else { attempts.wrote(store, self, &mends).await? };
                let changed: BTreeSet<_> = again.iter().collect();
                for Mend { id, mended, .. } in mends.documents {
                    if changed.contains(&id) {
                        before.insert(id, mended);
                    } else {
                        tell(id, mended);
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
    ) -> Result<Mends> {
        let mut desk = self.replayed(store, env, &parked).await?;
        let mut done = Mends::default();
        for (record, parked) in parked {
            let id = record.id;
            // An earlier worker could decode this event and folded it. Continuing without it would
            // lose it.
            if let Some(stray) = &desk.stray {
                done.push(id, Mended::StillFailing(stray.clone()), None);
                continue;
            }
            let Some(mut slot) = desk.documents.take(&id) else { continue };
            let failure = slot.loss().and_then(|loss| loss.error.as_ref()).map(ToString::to_string);
            slot.park(parked.attempts + 1);
            if let Some(still) = slot.parked_mut().filter(|still| still.position == parked.position) {
                still.since = parked.since;
            }
            let write = slot.write(&id);
            done.push(id, failure.map_or(Mended::Repaired, Mended::StillFailing), write);
        }
        done.streams = desk.set_aside();
        Ok(done)
    }

    /// Returns a desk with parked documents, folded on from their failing events.
    async fn replayed<S: Store>(
        &self,
        store: &S,
        env: &dyn Env,
        parked: &[(Record, Box<Parked>)],
    ) -> Result<FoldState<P::Document>> {
        let (from, through) = reading(parked);
        let mut desk = FoldState::careful(from.clone());
        for (record, _) in parked {
            desk.documents.insert(record.id.clone(), DocumentSlot::released(record.clone()));
        }
        if !self.routes_by_stream() {
            self.replay(store, env, &mut desk, Replay::Range { from, through }).await?;
            return Ok(desk);
        }
        for (record, parked) in parked {
            // Each stream is read separately: the progress of the previous one does not apply to
            // this one.
            desk.progress = parked.from.clone();
            let after = Revision(parked.revision.0.saturating_sub(1));
            let replay = self.replay_of(&record.id, after, Mark::default(), parked.through.clone(), store)?;
            self.replay(store, env, &mut desk, replay).await?;
        }
        Ok(desk)
    }

    /// Unparks a stream once all its events can be decoded. It refolds the documents of the waiting
    /// events from their first event, because other streams have moved their marks on meanwhile.
    pub(crate) async fn retry_stream<S: Store>(
        &self,
        store: &S,
        env: &dyn Env,
        stream: &StreamId,
        dry_run: bool,
    ) -> Result<Mended> {
        let (id, collection) = (DocumentId::from(stream), self.collection.streams());
        let mut attempts = Attempts::new(env);
        // The result of a write that may have succeeded without an answer.
        let mut before = Mended::NotParked;
        loop {
            let Some(record) = one(store, &collection, &id).await? else { return Ok(before) };
            let Some(parked) = record.header.parked.clone() else { return Ok(before) };
            let failure = match self.documents_waiting(store, &parked).await? {
                Ok(_) if dry_run => None,
                Ok(_) if !parked.anew => {
                    self.take_up(store, record, &mut attempts).await?;
                    continue;
                }
                Ok(documents) => self.refold_all(store, env, documents, &parked).await?,
                Err(error) => Some(error),
            };
            let mended = failure.clone().map_or(Mended::Repaired, Mended::StillFailing);
            if dry_run {
                return Ok(mended);
            }
            let mut header = record.header.clone();
            header.parked = failure
                .map(|error| Box::new(Parked { error, attempts: parked.attempts + 1, ..(*parked).clone() }));
            if header.parked.is_none() {
                header.mark.merge(&parked.through);
            }
            if self.wrote_stream(store, record, header, &mut attempts).await? {
                return Ok(mended);
            }
            before = mended;
        }
    }

    /// Marks a parked stream as being retried. From here on no worker refolds a document without
    /// it. Folded events therefore stay folded, and the stream can be unparked once the last
    /// document has its events.
    async fn take_up<S: Store>(&self, store: &S, row: Record, attempts: &mut Attempts) -> Result<()> {
        let mut header = row.header.clone();
        if let Some(parked) = &mut header.parked {
            parked.anew = true;
        }
        // If another writer was faster, the next read of the row shows it.
        self.wrote_stream(store, row, header, attempts).await.map(drop)
    }

    async fn wrote_stream<S: Store>(
        &self,
        store: &S,
        row: Record,
        header: Header,
        attempts: &mut Attempts,
    ) -> Result<bool> {
        let record = Record { id: row.id.clone(), header, body: None };
        let write = DocumentWrite { expected: Some(row.header), record };
        let changes = CollectionWrites { collection: self.collection.streams(), writes: vec![write] };
        Ok(attempts.committed(store, vec![changes], vec![row.id]).await?.is_empty())
    }

    /// Refolds one document from its first event and replaces it under guard. If the fold fails,
    /// the document stays as it is.
    pub(crate) async fn refold<S: Store>(&self, store: &S, env: &dyn Env, id: &DocumentId) -> Result<Mended> {
        let mut attempts = Attempts::new(env);
        loop {
            let ids = std::slice::from_ref(id);
            let mends = self.refolded(store, env, ids, None, &mut attempts, false).await?;
            let mended = mends.documents.first().map_or(Mended::Repaired, |mend| mend.mended.clone());
            if mended != Mended::Repaired || attempts.wrote(store, self, &mends).await?.is_empty() {
                return Ok(mended);
            }
        }
    }

    /// Returns the documents that the events of a parked stream belong to, or the reason why one
    /// event still can't be routed.
    async fn documents_waiting<S: Store>(
        &self,
        store: &S,
        parked: &Parked,
    ) -> Result<Result<BTreeSet<DocumentId>, String>> {
        let mut documents = BTreeSet::new();
        let after = Revision(parked.revision.0.saturating_sub(1));
        let through = parked.through.position(parked.partition);
        let mut replay = Replay::Stream { stream: parked.stream.clone(), after, through };
        while let Some((_, page)) = replay.next(store).await? {
            for event in page.events {
                match self.documents_of(event) {
                    Ok(ids) => documents.extend(ids.as_slice().iter().cloned()),
                    Err(error) => return Ok(Err(error.to_string())),
                }
            }
        }
        Ok(Ok(documents))
    }

    /// Refolds the documents of a parked stream as if it were not parked. Documents that fail are
    /// parked, so that the others need not wait. Returns the error that prevents the repair of all
    /// of them, if any.
    async fn refold_all<S: Store>(
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
                let mends = self.refolded(store, env, &left, Some(release), &mut attempts, false).await?;
                if let Some(Mend { mended: Mended::StillFailing(stray), write: None, .. }) =
                    mends.documents.first()
                {
                    return Ok(Some(stray.clone()));
                }
                left = attempts.wrote(store, self, &mends).await?;
            }
        }
        Ok(None)
    }

    /// Refolds documents from their first event, and returns the result and the write of each. A
    /// document whose fold fails stays as it is, with a write that parks it. Parked streams that
    /// can be decoded by now are marked as being retried. An earlier worker that could decode them
    /// may already have folded them.
    async fn refolded<S: Store>(
        &self,
        store: &S,
        env: &dyn Env,
        ids: &[DocumentId],
        release: Option<&Parked>,
        attempts: &mut Attempts,
        dry_run: bool,
    ) -> Result<Mends> {
        loop {
            let (mends, aside) = self.refolded_without(store, env, ids, release).await?;
            let mut taken_up = false;
            for parked in aside.iter().filter(|_| !dry_run && !planted(Bug::TakenUpIgnored)) {
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
                return Ok(mends);
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
    ) -> Result<(Mends, Vec<Parked>)> {
        let taken_up = (release.is_some() || !planted(Bug::TakenUpIgnored)).then(Mark::default);
        let mut desk = FoldState { taken_up, ..FoldState::careful(Mark::default()) };
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
            desk.documents.insert(id.clone(), DocumentSlot::refolded(header));
        }
        if let Some(parked) = release {
            through.merge(&parked.through);
        }
        if self.routes_by_stream() {
            for id in ids {
                desk.progress = Mark::default();
                let whole = self.replay_of(id, Revision(0), Mark::default(), through.clone(), store)?;
                self.replay(store, env, &mut desk, whole).await?;
            }
        } else if !ids.is_empty() {
            loop {
                let range = Replay::Range { from: desk.progress.clone(), through: through.clone() };
                self.replay(store, env, &mut desk, range).await?;
                // A stream that is being retried may have waiting events beyond this point. The
                // worker that unparks it relies on them being folded.
                match &desk.taken_up {
                    Some(beyond) if !through.covers(beyond) => through.merge(beyond),
                    _ => break,
                }
            }
        }
        let mut done = Mends::default();
        for id in ids {
            // An earlier worker could decode this event and folded it. Continuing without it would
            // lose it.
            if let Some(stray) = &desk.stray {
                done.push(id.clone(), Mended::StillFailing(stray.clone()), None);
                continue;
            }
            let Some(mut slot) = desk.documents.take(id) else { continue };
            let failure = slot.loss().and_then(|loss| loss.failure.clone());
            let said = failure.as_ref().map(|failure| {
                format!("{id}: {} (revision {} of {})", failure.error, failure.revision, failure.stream)
            });
            let mended = said.map_or(Mended::Repaired, Mended::StillFailing);
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
                        let refolds = record.header.mark.get(&Lane::named(REFOLDED)) + 1;
                        slot.mark_mut().merge(&record.header.mark);
                        if !planted(Bug::RefoldUnmarked) {
                            slot.mark_mut().advance(&Lane::named(REFOLDED), refolds);
                        }
                    }
                    slot.set_dirty();
                    slot.write(id)
                }
            };
            done.push(id.clone(), mended, write);
        }
        let mut aside: Vec<_> = desk.streams.slots().filter_map(|slot| slot.parked().cloned()).collect();
        aside.sort_by(|a, b| a.stream.cmp(&b.stream));
        done.streams = desk.set_aside();
        Ok((done, aside))
    }
}

/// The result of repairing one document, and its write, if there is one.
struct Mend {
    id: DocumentId,
    mended: Mended,
    write: Option<DocumentWrite>,
}

/// The result of repairing several documents.
#[derive(Default)]
struct Mends {
    documents: Vec<Mend>,
    /// The streams that the documents were folded without, and how far. A later retry of such a
    /// stream needs to know.
    streams: Vec<DocumentWrite>,
}

impl Mends {
    fn push(&mut self, id: DocumentId, mended: Mended, write: Option<DocumentWrite>) {
        self.documents.push(Mend { id, mended, write });
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

/// Guarded writes, retried with growing delays.
struct Attempts(Box<dyn Iterator<Item = std::time::Duration> + Send>);

impl Attempts {
    fn new(env: &dyn Env) -> Self {
        Self(Box::new(Backoff::default().limit(20).delays(env.random())))
    }

    /// Writes the repaired documents. Returns the documents to repair again because another writer
    /// changed something.
    async fn wrote<S: Store, P: Projection>(
        &mut self,
        store: &S,
        folder: &Folder<P>,
        mends: &Mends,
    ) -> Result<Vec<DocumentId>> {
        let writes: Vec<_> = mends.documents.iter().filter_map(|mend| mend.write.clone()).collect();
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        let ids = mends.documents.iter().map(|mend| mend.id.clone()).collect();
        let streams =
            CollectionWrites { collection: folder.collection.streams(), writes: mends.streams.clone() };
        let documents = CollectionWrites { collection: folder.collection.clone(), writes };
        self.committed(store, vec![streams, documents], ids).await
    }

    /// Commits the changes. Returns the given ids if another writer changed something.
    async fn committed<S: Store>(
        &mut self,
        store: &S,
        mut changes: Vec<CollectionWrites>,
        mut ids: Vec<DocumentId>,
    ) -> Result<Vec<DocumentId>> {
        changes.retain(|changes| !changes.writes.is_empty());
        let collection = changes.last().map(|changes| changes.collection.base().to_string());
        match store.commit(Arc::new(Commit { advance: None, changes })).await {
            Ok(CommitOutcome::Applied) => return Ok(Vec::new()),
            // A store without transactions has written the documents it does not name; one with
            // transactions has written none. Repairing a whole document again does no harm.
            Ok(CommitOutcome::Conflict(_) | CommitOutcome::Unknown(_)) => {}
            Err(error) if error.is_transient() => {}
            Err(error) => return Err(error),
        }
        let Some(delay) = self.0.next() else {
            ids.truncate(1);
            let collection = collection.unwrap_or_default();
            let message = format!("mending {ids:?} in {collection}: others keep changing it; try again");
            return Err(Error::new(Kind::Conflict, message));
        };
        sleep(delay).await;
        Ok(ids)
    }
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

async fn one<S: Store>(store: &S, collection: &Collection, id: &DocumentId) -> Result<Option<Record>> {
    Ok(store.load_current(collection, vec![id.clone()]).await?.pop())
}

#[cfg(test)]
mod tests {
    use super::*;
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
