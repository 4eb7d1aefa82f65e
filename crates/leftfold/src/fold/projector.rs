//! The projector: folds the log into one projection's documents for as long as it runs.
//!
//! Reading and decoding, folding, and committing overlap. A separate task reads pages ahead, and a
//! batch is folded while the previous one is being committed. A batch ends at the end of the log,
//! at a bound in bytes or in time, or at a failed fold. Each document it changed is then written
//! once.
//!
//! **Invariant**: memory is only ever ahead of the store by the current batch and the one in
//! flight. On any doubt the projector discards both and continues from the stored checkpoint.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::Instrument as _;

use super::batch::{FoldState, Folder, Portion, Routed};
use super::pipes::{Settled, read_ahead, submit};
use super::pulse::{Activity, Pulse, SharedPulse};
use super::replay::{Replay, is_ahead};
use super::slot::{Delta, DocumentSlot, Loss};
use super::{Error as FoldError, Projection, threads};
use crate::backoff::Backoff;
use crate::budget::{Budget, Share, Use};
use crate::documents::{Advance, Checkpoint, Claim, CollectionWrites, Commit, Parked, Tally, frozen};
use crate::env::Env;
use crate::error::{Error, Kind, Result};
use crate::event::{DocumentId, Partition, Position};
use crate::mark::Mark;
use crate::planted::{Bug, planted};
use crate::store::Store;

/// The options of a projector. The defaults suit most projections.
#[derive(Clone, Debug)]
pub struct FoldOptions {
    /// The approximate memory for the cache of documents, in bytes.
    pub cache_bytes: usize,
    /// The approximate size at which a batch ends, in bytes of memory of the documents it touched.
    pub batch_bytes: usize,
    /// The time after which a batch ends.
    pub batch_time: Duration,
    /// The largest page read from the log, in bytes of data.
    pub page_bytes: usize,
    /// The retry policy of a failing fold before its document is parked.
    pub retry: Backoff,
    /// Decides which fold errors to retry; by default the transient ones.
    pub should_retry: fn(&FoldError) -> bool,
    /// The time after which a silent worker can be replaced. The worker renews its lease after half
    /// of it.
    pub lease: Duration,
    /// The memory budget of the process, which covers caches and batches. When it is used up,
    /// caches are emptied and batches end early. Unlimited by default.
    pub budget: Budget,
}

impl Default for FoldOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 24 << 20,
            batch_bytes: 20 << 20,
            batch_time: Duration::from_secs(1),
            page_bytes: 1 << 19,
            retry: Backoff::default(),
            should_retry: FoldError::is_transient,
            // A killed process is replaced within five seconds, and an idle one sends few commands.
            lease: Duration::from_secs(4),
            budget: Budget::unlimited(),
        }
    }
}

/// Folds one projection.
pub(crate) struct Projector<S, P: Projection> {
    pub(crate) store: S,
    pub(crate) folder: Arc<Folder<P>>,
    /// The generation to fold.
    pub(crate) number: u32,
    /// `true` to fold only while that generation is live.
    pub(crate) only_live: bool,
    pub(crate) env: Arc<dyn Env>,
    pub(crate) options: FoldOptions,
    pub(crate) owner: String,
    pub(crate) pulse: SharedPulse,
}

/// A batch that is being committed.
struct InFlight {
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

/// The longest time to fold a page before the run checks everything else.
const SLICE: Duration = Duration::from_millis(50);
/// The time the projection's code may continue after a stop request.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// The reason why a run ended.
enum End {
    Stopped,
    /// Another worker does this work.
    Replaced,
    /// This generation must not be folded, at least for now.
    Frozen,
}

/// The reason why a projector ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// A stop request.
    Stopped,
    /// The checkpoint of the generation is frozen, or the generation no
    /// longer exists.
    Frozen,
}

/// The number of attempts to fold one event.
struct Tries {
    partition: Partition,
    position: Position,
    count: u32,
    delays: Box<dyn Iterator<Item = Duration> + Send>,
}

impl Tries {
    fn at(failure: &Parked, options: &FoldOptions, env: &dyn Env) -> Self {
        let delays = Box::new(options.retry.delays(env.random()));
        // The batch has already tried it once.
        Self { partition: failure.partition, position: failure.position, count: 1, delays }
    }
}

/// The state of one run, from a stored checkpoint on.
struct Run<'a, S, P: Projection> {
    projector: &'a Projector<S, P>,
    pages: mpsc::Receiver<Result<Routed<P::Event>>>,
    desk: FoldState<P::Document>,
    /// A partly folded page.
    page: Option<Routed<P::Event>>,
    /// The shares of cached documents, and of the batch's documents, in the memory budget.
    kept: Share,
    in_hand: Share,
    /// The time when the lease must be renewed.
    renewal: Instant,
    /// The stored checkpoint.
    checkpoint: Checkpoint,
    in_flight: Option<InFlight>,
    /// The time when the current batch began.
    begun: Option<Instant>,
    at_head: bool,
    some_streams_parked: bool,
    rate: Rate,
    stop: watch::Receiver<bool>,
    _reader: JoinSet<()>,
}

impl<S: Store, P: Projection> Projector<S, P> {
    /// Runs until told to stop, finishing the current batch, or until its generation is frozen.
    /// Nothing else ends it: if the store fails, it waits and continues from the checkpoint.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) -> Ended {
        let patience =
            Backoff::default().first(Duration::from_millis(50)).most(Duration::from_secs(15)).without_limit();
        let mut delays = patience.delays(self.env.random());
        let ended = loop {
            let before = Instant::now();
            let wait = match unpanicked(self.work(&mut stop)).await {
                Ok(End::Stopped) => break Ended::Stopped,
                Ok(End::Frozen) => break Ended::Frozen,
                Ok(End::Replaced) => Duration::ZERO,
                Err(error) if error.kind() == Kind::Stopped && *stop.borrow() => {
                    tracing::debug!(projection = %self.folder.collection, %error, "stopped");
                    break Ended::Stopped;
                }
                Err(error) => {
                    tracing::warn!(projection = %self.folder.collection, %error, "projection failed, will go on");
                    self.show(|pulse| {
                        pulse.activity = Activity::Failing;
                        pulse.last_error = Some(error.to_string());
                    });
                    if before.elapsed() > Duration::from_mins(1) {
                        delays = patience.delays(self.env.random());
                    }
                    delays.next().unwrap_or(Duration::from_secs(15))
                }
            };
            tokio::select! { biased;
                () = stopped(&mut stop) => break Ended::Stopped,
                () = sleep(wait) => {}
            }
        };
        if let Err(error) = self.store.release(&self.folder.collection, &self.owner).await {
            tracing::debug!(projection = %self.folder.collection, %error, "lease not released, it will end by itself");
        }
        self.show(|pulse| pulse.activity = Activity::Stopped);
        ended
    }

    /// Claims the lease, then works from the stored checkpoint on.
    async fn work(&self, stop: &mut watch::Receiver<bool>) -> Result<End> {
        /// The interval at which a standby worker checks whether its generation is still wanted.
        const LOOK_EVERY: Duration = Duration::from_secs(1);
        loop {
            if !self.is_wanted().await? {
                return Ok(End::Frozen);
            }
            let Claim::Theirs { ends_in } = self.claim().await? else { break };
            self.show(|pulse| pulse.activity = Activity::Standby);
            // Wait at most for one lease of our own: the clock that measures theirs may jump.
            let until = Instant::now() + ends_in.min(self.options.lease.max(LOOK_EVERY));
            while Instant::now() < until {
                tokio::select! { biased;
                    () = stopped(stop) => return Ok(End::Stopped),
                    () = sleep_until(until.min(Instant::now() + LOOK_EVERY)) => {}
                }
                // The lease holder may take long to notice that another generation is live.
                if !self.is_wanted().await? {
                    return Ok(End::Frozen);
                }
            }
        }
        let checkpoint = self.store.checkpoint(&self.folder.collection).await?;
        if frozen(&checkpoint.mark).is_some() {
            return Ok(End::Frozen);
        }
        let some_streams_parked = !self.folder.routes_by_stream()
            && !self.store.parked(&self.folder.collection.streams(), None, 1).await?.is_empty();
        self.show(|pulse| pulse.folding = Some(Arc::clone(&self.folder.folding)));
        let (sender, pages) = mpsc::channel(1);
        let mut reader = JoinSet::new();
        reader.spawn(read_ahead(
            self.store.clone(),
            self.folder.clone(),
            checkpoint.mark.clone(),
            (self.options.page_bytes, self.options.budget.clone()),
            sender,
        ));
        let run = Run {
            projector: self,
            pages,
            desk: FoldState::new(checkpoint.mark.clone(), self.options.cache_bytes),
            page: None,
            kept: self.options.budget.take(Use::Cache, 0),
            in_hand: self.options.budget.take(Use::Fold, 0),
            renewal: Instant::now() + self.renew_after(),
            checkpoint,
            in_flight: None,
            begun: None,
            at_head: false,
            some_streams_parked,
            rate: Rate::default(),
            stop: stop.clone(),
            _reader: reader,
        };
        run.go(stop).await
    }

    /// Returns whether this generation should still be folded. During a switch the live one should
    /// not: its worker helps to complete the switch instead.
    async fn is_wanted(&self) -> Result<bool> {
        let known = self.store.generations(&self.folder.collection.base()).await?;
        let is_live = known.live.number == self.number && known.switching.is_none();
        Ok(if self.only_live { is_live } else { known.has(self.number) })
    }

    fn renew_after(&self) -> Duration {
        (self.options.lease / 2).clamp(Duration::from_millis(1), Duration::from_hours(1))
    }

    async fn claim(&self) -> Result<Claim> {
        self.store.claim(&self.folder.collection, &self.owner, self.options.lease).await
    }

    fn show(&self, change: impl FnOnce(&mut Pulse)) {
        change(&mut self.pulse.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl<S: Store, P: Projection> Run<'_, S, P> {
    async fn go(mut self, stop: &mut watch::Receiver<bool>) -> Result<End> {
        loop {
            self.show();
            if Instant::now() >= self.renewal {
                let is_ours = self.projector.claim().await? == Claim::Ours;
                if !is_ours || !self.projector.is_wanted().await? {
                    // Commit the finished work anyway. Otherwise workers that are slower than their
                    // lease would replace each other forever without progress.
                    self.finish().await?;
                    return Ok(End::Replaced);
                }
                self.renewal = Instant::now() + self.projector.renew_after();
            }
            tokio::select! { biased;
                () = stopped(stop) => {
                    return Ok(if self.finish().await? { End::Stopped } else { End::Replaced });
                }
                settled = wait_for(&mut self.in_flight) => {
                    if !self.settled(settled?) || !self.cut_if_due().await? {
                        return Ok(End::Replaced);
                    }
                }
                page = next(&mut self.page, &mut self.pages) => {
                    let gone = || Error::new(Kind::Stopped, "reading the log ahead: the reader ended");
                    self.fold(page.ok_or_else(gone)??).await?;
                    if !self.cut_if_due().await? {
                        return Ok(End::Replaced);
                    }
                }
                () = sleep_until(self.renewal) => {}
            }
        }
    }

    /// Folds part of a page into the current batch. It stops after a slice of time, so that a batch
    /// of slow folds also ends in time.
    async fn fold(&mut self, mut page: Routed<P::Event>) -> Result<()> {
        let Projector { store, folder, env, .. } = self.projector;
        // The rest of a page needs this too: a commit in between may have evicted documents it
        // needs.
        let missing = folder.missing(&self.desk, &page);
        if page.is_untouched() {
            let (needed, loaded) = (page.applications(), missing.len() as u64);
            self.projector.show(|pulse| pulse.figures.looked_up(needed, loaded));
        }
        let mut records = Vec::new();
        if !missing.is_empty() {
            records = store.load(&folder.collection, missing.clone()).await?;
            self.look_at_streams_again(is_ahead(&records, &self.desk.progress));
        }
        let streams = folder.missing_streams(&self.desk, &page, self.some_streams_parked);
        if !streams.is_empty() {
            self.some_streams_parked = true;
            folder.load_streams(store, &mut self.desk, streams).await?;
        }
        self.begun.get_or_insert_with(Instant::now);
        let (folder, now) = (Arc::clone(folder), env.now());
        // When code runs in place, nothing else runs during a slice, so slices are small there.
        let events = if threads::in_place() { 512 } else { usize::MAX };
        let (page, done) = self
            .on_desk(move |desk| {
                desk.place(missing, records);
                let done = folder.apply(desk, &mut page, Portion { events, time: SLICE }, now);
                (page, done)
            })
            .await?;
        // The budget counts a batch but never refuses it.
        let _ = self.in_hand.resize(self.desk.documents.touched_bytes());
        self.at_head = done && !page.more;
        self.page = (!done).then_some(page);
        Ok(())
    }

    /// Runs the projection's code on the desk, on a separate thread.
    async fn on_desk<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut FoldState<P::Document>) -> T + Send + 'static,
    ) -> Result<T> {
        // If the code does not return, this run ends and the desk is not needed again.
        let mut desk = std::mem::replace(&mut self.desk, FoldState::new(Mark::default(), 0));
        let work = threads::run(move || {
            let done = work(&mut desk);
            (desk, done)
        });
        let (desk, done) = self.contained(work).await?;
        self.desk = desk;
        Ok(done)
    }

    /// Waits for code of the projection that runs on another thread, and renews the lease
    /// meanwhile. After a stop request, the code has a short time to return.
    async fn contained<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let mut work = std::pin::pin!(work);
        let mut deadline = None;
        let mut renewal = self.renewal;
        loop {
            tokio::select! { biased;
                done = &mut work => return done,
                () = stopped(&mut self.stop), if deadline.is_none() => {
                    deadline = Some(Instant::now() + STOP_GRACE);
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    let message = "stopping: the projection's code did not come back in time; its batch is left for later";
                    return Err(Error::new(Kind::Stopped, message));
                }
                () = sleep_until(renewal) => {
                    // The run claims the lease again when the code is back, and notices then if it
                    // is lost.
                    if let Err(error) = self.projector.claim().await {
                        tracing::debug!(projection = %self.projector.folder.collection, %error, "lease not renewed");
                    }
                    renewal = Instant::now() + self.projector.renew_after();
                }
            }
        }
    }

    /// Re-reads the parked streams if a loaded document is ahead of this worker. The worker that
    /// wrote it may have parked streams and folded the document without them. It wrote the streams
    /// before the document, so a read after loading the document finds them.
    fn look_at_streams_again(&mut self, ahead: bool) {
        if ahead && !self.projector.folder.routes_by_stream() && !planted(Bug::StreamsNotLookedAt) {
            self.some_streams_parked = true;
            self.desk.streams.forget();
        }
    }

    /// Ends the batch if it is due. Returns `false` if another worker does this work.
    async fn cut_if_due(&mut self) -> Result<bool> {
        let Some(begun) = self.begun else { return Ok(true) };
        let options = &self.projector.options;
        let due = (self.at_head && self.in_flight.is_none())
            || self.desk.documents.touched_bytes() > options.batch_bytes
            || begun.elapsed() > options.batch_time
            || options.budget.allowance(Use::Request) == 0
            || self.desk.suspect;
        if due { self.cut().await } else { Ok(true) }
    }

    /// Writes the current batch and waits for the result. After a conflict the batch is current
    /// again and is written again.
    async fn finish(&mut self) -> Result<bool> {
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
            match self.on_desk(|desk| desk.documents.cut()).await? {
                Ok(cut) => break cut,
                Err(_) => self.desk.suspect = true,
            }
        };
        let streams = self.desk.streams.cut().unwrap_or_default();
        self.begun = None;
        let (of_documents, of_streams) = (documents.total(), streams.total());
        let counted = std::mem::take(&mut self.desk.tally);
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
        let to = Checkpoint { mark: self.desk.progress.clone(), tally };
        let advance = Advance { projection: collection.clone(), from: self.checkpoint.mark.clone(), to };
        let commit = Arc::new(Commit { advance: Some(advance), changes });
        let span = tracing::debug_span!(
            "commit",
            projection = %collection,
            events = counted.events,
            documents = documents.deltas.len(),
            position = %self.desk.progress,
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
    fn settled(&mut self, (settled, took): (Settled, Duration)) -> bool {
        let Some(InFlight { commit, deltas, batch, stream_batch, tally, .. }) = self.in_flight.take() else {
            return true;
        };
        let Some(advance) = &commit.advance else { return true };
        match settled {
            Settled::Applied => {
                self.rate.count(tally.events);
                self.projector.show(|pulse| pulse.figures.committed(tally.events, deltas.len(), took));
                self.checkpoint = advance.to.clone();
                self.desk.documents.settle(batch);
                self.desk.streams.settle(stream_batch);
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
                tracing::debug!(projection = %collection, documents = conflict.documents.len(), "conflict, folding anew");
                // The batch joins the current one again, and documents that another writer changed
                // are folded again.
                let writes = commit.changes.iter().filter(|changes| changes.collection == *collection);
                let undone = writes.flat_map(|changes| &changes.writes);
                let undone = undone.map(|write| (write.record.id.clone(), write.expected.clone()));
                self.desk.documents.undo(undone.zip(deltas));
                self.desk.suspect = true;
                for (_, id) in &conflict.documents {
                    if let Some(slot) = self.desk.documents.touch(id, 0)
                        && !planted(Bug::KeepAfterConflict)
                    {
                        slot.distrust();
                    }
                }
                self.desk.tally.absorb(&tally);
                self.desk.tally.conflicts += conflict.documents.len() as u64;
                self.begun.get_or_insert_with(Instant::now);
                true
            }
        }
    }

    /// Accounts for cached documents in the memory budget, and empties the cache if there is no
    /// room.
    fn weigh(&mut self) {
        let documents = &mut self.desk.documents;
        let _ = self.in_hand.resize(documents.touched_bytes());
        if self.kept.resize(documents.bytes().saturating_sub(documents.touched_bytes())).is_err() {
            documents.forget();
            self.desk.streams.forget();
            // The remaining documents are about to be written.
            let _ = self.kept.resize(0);
        }
    }

    /// Folds documents again from their stored state if their fold failed or another writer changed
    /// them. A failing fold is retried according to the policy, then its document is parked.
    async fn repair(&mut self) -> Result<()> {
        let Projector { store, folder, env, options, .. } = self.projector;
        let mut tries: HashMap<DocumentId, Tries> = HashMap::new();
        while std::mem::take(&mut self.desk.suspect) {
            let lost = self.desk.documents.lost();
            let retried = lost.iter().filter_map(|id| self.desk.documents.get(id)?.loss()?.error.as_ref());
            self.desk.tally.retried += retried.filter(|error| (options.should_retry)(error)).count() as u64;
            let (from, through) = (self.checkpoint.mark.clone(), self.desk.progress.clone());
            let again = {
                let (store, folder, env, lost) = (store.clone(), folder.clone(), env.clone(), lost.clone());
                threads::drive(async move {
                    let mut desk = FoldState::careful(from.clone());
                    let ahead = folder.load_documents(&store, &mut desk, lost).await?;
                    folder.replay(&store, &*env, &mut desk, Replay::Range { from, through }).await?;
                    Ok((desk, ahead))
                })
            };
            let (mut desk, ahead) = self.contained(async { again.await? }).await?;
            self.look_at_streams_again(ahead);
            // All documents of a batch must be folded with and without the same streams.
            let waits = |parked: &&Parked| parked.position <= self.desk.progress.position(parked.partition);
            for parked in desk.streams.slots().filter_map(DocumentSlot::parked).filter(waits) {
                let known =
                    self.desk.streams.get(&DocumentId::from(&parked.stream)).and_then(DocumentSlot::parked);
                if known.is_none() && !planted(Bug::MixedBatch) {
                    let message = "folding anew: a stream was set aside meanwhile; beginning again";
                    return Err(Error::new(Kind::Conflict, message));
                }
            }
            let mut pause = None;
            for id in lost {
                let Some(mut slot) = desk.documents.take(&id) else { continue };
                if let Some(Loss { failure: Some(failure), error: Some(error), .. }) = slot.loss() {
                    let said = format!("{id}: {error} (revision {} of {})", failure.revision, failure.stream);
                    self.desk.tally.last_error = Some(said);
                    let tries =
                        tries.entry(id.clone()).or_insert_with(|| Tries::at(failure, options, &**env));
                    if (tries.partition, tries.position) != (failure.partition, failure.position) {
                        *tries = Tries::at(failure, options, &**env);
                    }
                    tries.count += 1;
                    match tries.delays.next().filter(|_| (options.should_retry)(error)) {
                        Some(delay) => {
                            pause = pause.max(Some(delay));
                            self.desk.suspect = true;
                        }
                        None => slot.park(tries.count),
                    }
                }
                self.desk.documents.replace(&id, slot);
            }
            if let Some(pause) = pause {
                tokio::select! { biased;
                    () = stopped(&mut self.stop) => {
                        let message = "waiting to try a fold again: told to stop, the batch is left for later";
                        return Err(Error::new(Kind::Stopped, message));
                    }
                    () = sleep(pause) => {}
                }
            }
        }
        Ok(())
    }

    fn show(&self) {
        let activity =
            if self.at_head && self.begun.is_none() { Activity::Live } else { Activity::CatchingUp };
        let rate = self.rate.per_second();
        self.projector.show(|pulse| {
            pulse.activity = activity;
            pulse.events_per_second = rate;
            pulse.last_error = None;
        });
    }
}

/// Returns the partly folded page, or else the next one.
async fn next<E>(
    page: &mut Option<Routed<E>>,
    pages: &mut mpsc::Receiver<Result<Routed<E>>>,
) -> Option<Result<Routed<E>>> {
    match page.take() {
        Some(page) => Some(Ok(page)),
        None => pages.recv().await,
    }
}

async fn wait_for(in_flight: &mut Option<InFlight>) -> Result<(Settled, Duration)> {
    let Some(in_flight) = in_flight else { return std::future::pending().await };
    match in_flight.task.join_next().await {
        Some(Ok(settled)) => settled,
        Some(Err(error)) => {
            Err(Error::new(Kind::Stopped, "committing a batch: the task ended").with_source(error))
        }
        None => std::future::pending().await,
    }
}

/// Turns a panic into an error, so that the work starts over.
async fn unpanicked<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|context| {
        let poll = std::panic::AssertUnwindSafe(|| work.as_mut().poll(context));
        std::panic::catch_unwind(poll).unwrap_or_else(|_| {
            Poll::Ready(Err(Error::new(Kind::Stopped, "folding: the work panicked, see the log")))
        })
    })
    .await
}

pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that no sender is left to request a stop, which counts as a stop.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Events per second, averaged over the last seconds.
#[derive(Debug, Default)]
struct Rate {
    last: Option<Instant>,
    smooth: f64,
}

impl Rate {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people to read")]
    fn count(&mut self, events: u64) {
        let now = Instant::now();
        if let Some(last) = self.last.replace(now) {
            let seconds = (now - last).as_secs_f64().max(1e-6);
            let weight = (seconds / 5.0).min(1.0);
            self.smooth += weight * (events as f64 / seconds - self.smooth);
        }
    }

    fn per_second(&self) -> f64 {
        let idle = self.last.map_or(0.0, |last| last.elapsed().as_secs_f64());
        self.smooth / (1.0 + (idle / 5.0).powi(2))
    }
}
