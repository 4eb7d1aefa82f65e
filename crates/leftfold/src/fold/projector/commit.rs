//! Commits of batches: each changed document is written once, together with the checkpoint.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::Instrument as _;

use super::super::slot::Delta;
use super::run::Run;
use crate::backoff::Backoff;
use crate::budget::Use;
use crate::documents::{Advance, Checkpoint, CollectionWrites, Commit, CommitConflict, CommitOutcome, Tally};
use crate::error::{Error, Kind, Result};
use crate::fold::Projection;
use crate::mutant;
use crate::store::Store;

/// A batch that is being committed.
pub(super) struct InFlight {
    /// The result of the commit, and its duration.
    task: JoinSet<Result<(Settled, Duration)>>,
    commit: Arc<Commit>,
    deltas: Vec<Delta>,
    batch: u64,
    /// The number of the same batch in the cache of parked streams.
    stream_batch: u64,
    /// The counters that belong to no single document.
    tally: Tally,
}

impl<S: Store, P: Projection> Run<'_, S, P> {
    /// Ends the batch if it is due. Returns `false` if another worker does this work.
    pub(super) async fn cut_if_due(&mut self) -> Result<bool> {
        let Some(begun) = self.begun else { return Ok(true) };
        let options = &self.projector.options;
        let due = (self.at_head && self.in_flight.is_none())
            || self.state.documents.touched_bytes() > options.batch_bytes
            || begun.elapsed() > options.batch_time
            || options.budget.allowance(Use::Request) == 0
            || self.state.suspect;
        if due { self.cut().await } else { Ok(true) }
    }

    /// Writes the current batch and waits for the result. After a conflict the batch is current
    /// again and is written again.
    pub(super) async fn finish(&mut self) -> Result<bool> {
        loop {
            if self.begun.is_some() && !self.cut().await? || !self.wait().await? {
                return Ok(false);
            }
            if self.begun.is_none() {
                return Ok(true);
            }
        }
    }

    /// Ends the batch: repairs failed folds, then passes the writes to the store.
    async fn cut(&mut self) -> Result<bool> {
        if !self.wait().await? {
            return Ok(false);
        }
        let documents = loop {
            self.repair().await?;
            match self.on_state(|state| state.documents.cut()).await? {
                Ok(cut) => break cut,
                Err(_) => self.state.suspect = true,
            }
        };
        let streams = self.state.streams.cut().unwrap_or_default();
        self.begun = None;
        let (of_documents, of_streams) = (documents.total(), streams.total());
        let counted = std::mem::take(&mut self.state.tally);
        let mut tally = self.checkpoint.tally.clone();
        tally.absorb(&counted);
        tally.applied += of_documents.applied;
        tally.set_aside += of_documents.set_aside + of_streams.set_aside;
        tally.parked += of_documents.parked + of_streams.parked;
        let collection = &self.projector.folder.collection;
        let mut changes = Vec::with_capacity(2);
        if !streams.writes.is_empty() {
            changes.push(CollectionWrites { collection: collection.streams(), writes: streams.writes });
        }
        changes.push(CollectionWrites { collection: collection.clone(), writes: documents.writes });
        let to = Checkpoint { mark: self.state.progress.clone(), tally };
        let advance = Advance { projection: collection.clone(), from: self.checkpoint.mark.clone(), to };
        let commit = Arc::new(Commit { advance: Some(advance), changes });
        let span = tracing::debug_span!(
            "commit",
            projection = %collection,
            events = counted.events,
            documents = documents.deltas.len(),
            position = %self.state.progress,
        );
        let mut task = JoinSet::new();
        let submitted = submit(self.projector.store.clone(), commit.clone(), self.projector.env.random());
        let submitted = submitted.instrument(span);
        task.spawn(async move {
            let begun = Instant::now();
            Ok((submitted.await?, begun.elapsed()))
        });
        let (batch, stream_batch, deltas) = (documents.batch, streams.batch, documents.deltas);
        self.in_flight = Some(InFlight { task, commit, deltas, batch, stream_batch, tally: counted });
        Ok(true)
    }

    /// Waits until nothing is in flight.
    async fn wait(&mut self) -> Result<bool> {
        while self.in_flight.is_some() {
            let settled = wait_for(&mut self.in_flight).await?;
            if !self.settled(settled) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Handles the result of the batch in flight. Returns `false` if another worker does this work.
    pub(super) fn settled(&mut self, (settled, took): (Settled, Duration)) -> bool {
        let Some(InFlight { commit, deltas, batch, stream_batch, tally, .. }) = self.in_flight.take() else {
            return true;
        };
        let Some(advance) = &commit.advance else { return true };
        match settled {
            Settled::Applied => {
                self.rate.count(tally.events);
                self.projector.show(|pulse| pulse.figures.committed(tally.events, deltas.len(), took));
                self.checkpoint = advance.to.clone();
                self.state.documents.settle(batch);
                self.state.streams.settle(stream_batch);
                self.weigh();
                true
            }
            Settled::Conflict(conflict) => {
                let collection = &self.projector.folder.collection;
                // Another worker does this work, or this commit was applied without an answer, or a
                // stream that this batch parks was changed meanwhile. All are rare enough to start
                // over.
                if conflict.checkpoint || commit.changes.len() > 1 {
                    return false;
                }
                tracing::debug!(projection = %collection, documents = conflict.documents.len(), "conflict, \
                    folding the changed documents again");
                // The batch joins the current one again, and documents that another writer changed
                // are folded again.
                let writes = commit.changes.iter().filter(|changes| changes.collection == *collection);
                let undone = writes.flat_map(|changes| &changes.writes);
                let undone = undone.map(|write| (write.record.id.clone(), write.expected.clone()));
                self.state.documents.undo(undone.zip(deltas));
                self.state.suspect = true;
                for (_, id) in &conflict.documents {
                    mutant!(KeepAfterConflict => continue);
                    if let Some(slot) = self.state.documents.touch(id, 0) {
                        slot.distrust();
                    }
                }
                self.state.tally.absorb(&tally);
                self.state.tally.conflicts += conflict.documents.len() as u64;
                self.begun.get_or_insert_with(Instant::now);
                true
            }
        }
    }

    /// Accounts for cached documents in the memory budget, and empties the cache if there is no
    /// room.
    fn weigh(&mut self) {
        let documents = &mut self.state.documents;
        let _ = self.in_hand.resize(documents.touched_bytes());
        if self.kept.resize(documents.bytes().saturating_sub(documents.touched_bytes())).is_err() {
            documents.forget();
            self.state.streams.forget();
            // The remaining documents are about to be written.
            let _ = self.kept.resize(0);
        }
    }
}

pub(super) async fn wait_for(in_flight: &mut Option<InFlight>) -> Result<(Settled, Duration)> {
    let Some(in_flight) = in_flight else { return std::future::pending().await };
    match in_flight.task.join_next().await {
        Some(Ok(settled)) => settled,
        Some(Err(error)) => {
            Err(Error::new(Kind::Stopped, "committing a batch: the task ended").with_source(error))
        }
        None => std::future::pending().await,
    }
}

/// The known outcome of a commit.
pub(super) enum Settled {
    Applied,
    Conflict(CommitConflict),
}

/// Commits, and repeats the same commit while its outcome is unknown. That is harmless, because its
/// guards hold at most once.
///
/// If the commit was applied without an answer, the repetition is a conflict, and the work starts
/// over from the store. A checkpoint at the expected mark would be no proof of success. Another
/// worker may have moved it there, with other documents than those in memory.
async fn submit<S: Store>(store: S, commit: Arc<Commit>, seed: u64) -> Result<Settled> {
    let mut delays = Backoff::default().limit(8).delays(seed);
    loop {
        let doubt = match store.commit(commit.clone()).await {
            Ok(CommitOutcome::Applied) => return Ok(Settled::Applied),
            Ok(CommitOutcome::Conflict(conflict)) => return Ok(Settled::Conflict(conflict)),
            Ok(CommitOutcome::Unknown(error)) => error,
            Err(error) if error.is_transient() => error,
            Err(error) => return Err(error),
        };
        let Some(delay) = delays.next() else { return Err(doubt) };
        tracing::debug!(error = %doubt, "outcome of a commit unknown, repeating it");
        sleep(delay).await;
    }
}
