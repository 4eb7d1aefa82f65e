//! Mending: parked documents and streams are tried again, and documents folded anew, beside the running projector.
//!
//! Every step is a guarded write of single documents, so that it does not matter who else is at work: a document
//! that the projector touched in between is simply mended again, from what it is then.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::sleep;

use super::Projection;
use super::batch::{Desk, Folder};
use super::replay::Replay;
use super::slot::Slot;
use crate::documents::{Changes, Collection, Commit, Header, Outcome, Parked, Record, Store, Write};
use crate::env::Env;
use crate::error::{Error, Kind, Result};
use crate::event::{DocumentId, Revision, StreamId};
use crate::mark::{Lane, Mark};
use crate::retry::Backoff;

/// The lane in which a document's mark counts how often it was folded anew from its first event on, so that who
/// computed from what it was before finds another mark.
const REFOLDED: &str = "refold";

/// How many documents are folded anew in one reading of the log.
const AT_ONCE: usize = 500;

/// What mending came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mended {
    /// It is whole again; on a dry run, it would be.
    Repaired,
    /// It still fails, as this says.
    StillFailing(String),
    /// There was nothing to mend.
    NotParked,
}

impl<P: Projection> Folder<P> {
    /// Folds a parked document from its failing event on, and unparks it in one commit.
    pub(crate) async fn retry_document<S: Store>(
        &self,
        store: &S,
        env: &dyn Env,
        id: &DocumentId,
        dry_run: bool,
    ) -> Result<Mended> {
        let mut attempts = Attempts::new(env);
        // What a write came to that may have come through unheard.
        let mut before = Mended::NotParked;
        loop {
            let Some(record) = one(store, &self.collection, id).await? else { return Ok(before) };
            let Some(parked) = record.header.parked.clone() else { return Ok(before) };
            let mut desk = Desk::careful(parked.from.clone());
            desk.documents.insert(id.clone(), Slot::released(record));
            let after = Revision(parked.revision.0.saturating_sub(1));
            let replay = self.replay_of(id, after, parked.from.clone(), parked.through.clone(), store)?;
            self.replay(store, env, &mut desk, replay).await?;
            // Whoever folded this event could decode it; to go on without it would lose it.
            if let Some(stray) = desk.stray {
                return Ok(Mended::StillFailing(stray));
            }
            let Some(mut slot) = desk.documents.take(id) else { return Ok(Mended::NotParked) };
            let mended = match slot.loss().and_then(|loss| loss.error.as_ref()) {
                Some(error) => Mended::StillFailing(error.to_string()),
                None => Mended::Repaired,
            };
            if dry_run {
                return Ok(mended);
            }
            slot.park(parked.attempts + 1);
            if let Some(still) = slot.parked_mut().filter(|still| still.position == parked.position) {
                still.since = parked.since;
            }
            let Some(write) = slot.write(id) else { return Ok(mended) };
            if attempts.wrote(store, &self.collection, vec![write]).await?.is_empty() {
                return Ok(mended);
            }
            before = mended;
        }
    }

    /// Unparks a stream once all its events can be decoded: the documents that the events set aside belong to are
    /// folded anew from their first event, since other streams have moved their marks on meanwhile.
    pub(crate) async fn retry_stream<S: Store>(
        &self,
        store: &S,
        env: &dyn Env,
        stream: &StreamId,
        dry_run: bool,
    ) -> Result<Mended> {
        let (id, collection) = (DocumentId::from(stream), self.collection.streams());
        let mut attempts = Attempts::new(env);
        // What a write came to that may have come through unheard.
        let mut before = Mended::NotParked;
        loop {
            let Some(record) = one(store, &collection, &id).await? else { return Ok(before) };
            let Some(parked) = record.header.parked.clone() else { return Ok(before) };
            let failure = match self.documents_waiting(store, &parked).await? {
                Ok(_) if dry_run => None,
                Ok(documents) => self.refold_all(store, env, documents, Some(&parked)).await?,
                Err(error) => Some(error),
            };
            let mended = match &failure {
                Some(error) => Mended::StillFailing(error.clone()),
                None => Mended::Repaired,
            };
            if dry_run {
                return Ok(mended);
            }
            let mut header = record.header.clone();
            header.parked = failure
                .map(|error| Box::new(Parked { error, attempts: parked.attempts + 1, ..(*parked).clone() }));
            if header.parked.is_none() {
                header.mark.merge(&parked.through);
            }
            let write = Write {
                expected: Some(record.header),
                record: Record { id: id.clone(), header, body: None },
            };
            if attempts.wrote(store, &collection, vec![write]).await?.is_empty() {
                return Ok(mended);
            }
            before = mended;
        }
    }

    /// Folds one document anew from its first event, and swaps it in under guard. One whose fold fails is left as
    /// it is.
    pub(crate) async fn refold<S: Store>(&self, store: &S, env: &dyn Env, id: &DocumentId) -> Result<Mended> {
        Ok(match self.refold_all(store, env, BTreeSet::from([id.clone()]), None).await? {
            Some(error) => Mended::StillFailing(error),
            None => Mended::Repaired,
        })
    }

    /// The documents that the events of a parked stream belong to, or why one of these still can't be told.
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

    /// Folds documents anew, treating a stream that is set aside as if it were not. Without such a stream it ends at
    /// the first that fails, with what failed; with one, those that fail are parked, so that the others need not wait.
    async fn refold_all<S: Store>(
        &self,
        store: &S,
        env: &dyn Env,
        documents: BTreeSet<DocumentId>,
        release: Option<&Parked>,
    ) -> Result<Option<String>> {
        let documents: Vec<_> = documents.into_iter().collect();
        for chunk in documents.chunks(AT_ONCE) {
            let mut attempts = Attempts::new(env);
            let mut left = chunk.to_vec();
            while !left.is_empty() {
                let (writes, failure) = self.refolded(store, env, &left, release).await?;
                if failure.is_some() {
                    return Ok(failure);
                }
                left = attempts.wrote(store, &self.collection, writes).await?;
            }
        }
        Ok(None)
    }

    async fn refolded<S: Store>(
        &self,
        store: &S,
        env: &dyn Env,
        ids: &[DocumentId],
        release: Option<&Parked>,
    ) -> Result<(Vec<Write>, Option<String>)> {
        let mut desk = Desk::careful(Mark::default());
        // The checkpoint first: what the projector commits from here on moves the documents' own marks.
        let mut through = store.checkpoint(&self.collection).await?.mark;
        for id in ids {
            desk.documents.insert(id.clone(), Slot::refolded(None));
        }
        for Record { id, header, .. } in store.load(&self.collection, ids.to_vec()).await? {
            through.merge(&header.mark);
            if let Some(parked) = &header.parked {
                through.merge(&parked.through);
            }
            desk.documents.insert(id, Slot::refolded(Some(header)));
        }
        if let Some(parked) = release {
            through.merge(&parked.through);
            desk.streams.insert(DocumentId::from(&parked.stream), Slot::absent());
        }
        if self.routes_by_stream() {
            for id in ids {
                let whole = self.replay_of(id, Revision(0), Mark::default(), through.clone(), store)?;
                self.replay(store, env, &mut desk, whole).await?;
            }
        } else {
            self.replay(store, env, &mut desk, Replay::Range { from: Mark::default(), through }).await?;
        }
        // Whoever folded this event could decode it; to go on without it would lose it.
        if desk.stray.is_some() {
            return Ok((Vec::new(), desk.stray));
        }
        let mut writes = Vec::new();
        for id in ids {
            let Some(mut slot) = desk.documents.take(id) else { continue };
            let failure = slot.loss().and_then(|loss| loss.failure.as_ref());
            if let Some(failure) = failure.filter(|_| release.is_none()) {
                let (revision, stream) = (failure.revision, &failure.stream);
                return Ok((
                    writes,
                    Some(format!("{id}: {} (revision {revision} of {stream})", failure.error)),
                ));
            }
            let failed = failure.is_some();
            if failed {
                slot.park(1);
            }
            if let Some(Header { mark, parked }) = slot.stored().cloned() {
                let refolds = mark.get(&Lane::named(REFOLDED)) + 1;
                // One that is parked waits from its failing event on, whatever it had folded without the stream.
                let kept = mark.lanes().filter(|(lane, _)| !failed || lane.partition().is_none());
                kept.for_each(|(lane, number)| slot.mark_mut().advance(lane, number));
                slot.mark_mut().advance(&Lane::named(REFOLDED), refolds);
                let place = |parked: &Parked| (parked.partition, parked.position);
                if let (Some(was), Some(now)) = (parked, slot.parked_mut())
                    && place(&was) == place(now)
                {
                    (now.since, now.attempts) = (was.since, was.attempts + 1);
                }
            } else if !failed && slot.document().is_none() {
                continue;
            }
            slot.set_dirty();
            writes.extend(slot.write(id));
        }
        Ok((writes, None))
    }
}

/// Guarded writes, tried again with growing patience.
struct Attempts(Box<dyn Iterator<Item = std::time::Duration> + Send>);

impl Attempts {
    fn new(env: &dyn Env) -> Self {
        Self(Box::new(Backoff::default().limit(20).delays(env.random())))
    }

    /// Writes, and answers which documents somebody else changed, so that they must be mended again.
    async fn wrote<S: Store>(
        &mut self,
        store: &S,
        collection: &Collection,
        writes: Vec<Write>,
    ) -> Result<Vec<DocumentId>> {
        let mut ids: Vec<_> = writes.iter().map(|write| write.record.id.clone()).collect();
        let changes = vec![Changes { collection: collection.clone(), writes }];
        match store.commit(Arc::new(Commit { advance: None, changes })).await {
            Ok(Outcome::Applied) => return Ok(Vec::new()),
            // A store without transactions has written those it does not name; one with them has written none.
            // Mending once more what is whole does no harm.
            Ok(Outcome::Conflict(_) | Outcome::Unknown(_)) => {}
            Err(error) if error.is_transient() => {}
            Err(error) => return Err(error),
        }
        let Some(delay) = self.0.next() else {
            ids.truncate(1);
            let message = format!("mending {ids:?} in {collection}: others keep changing it; try again");
            return Err(Error::new(Kind::Conflict, message));
        };
        sleep(delay).await;
        Ok(ids)
    }
}

async fn one<S: Store>(store: &S, collection: &Collection, id: &DocumentId) -> Result<Option<Record>> {
    Ok(store.load(collection, vec![id.clone()]).await?.pop())
}
