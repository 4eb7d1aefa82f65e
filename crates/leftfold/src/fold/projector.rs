//! The projector: folds the log into one projection's documents, for as long as it runs.
//!
//! Reading and decoding, folding, and committing overlap: pages are read ahead by a task of their own, a batch
//! is folded while the one before it is being committed. A batch ends where the log ends, at a bound in bytes or
//! in time, or where a fold failed; each document it changed is then written once.
//!
//! **Invariant**: what is in memory is only ever ahead of the store by the batch in hand and the one in flight. On
//! any doubt both are forgotten and the work goes on from the stored checkpoint.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::Instrument as _;

use super::batch::{Desk, Folder, Portion, Routed};
use super::figures::Figures;
use super::folding::Folding;
use super::pipes::{Settled, read_ahead, submit};
use super::replay::{Replay, is_ahead};
use super::slot::{Delta, Loss, Slot};
use super::status::Activity;
use super::{Error as FoldError, Projection, threads};
use crate::budget::{Budget, Share, Use};
use crate::documents::{Advance, Changes, Checkpoint, Claim, Commit, Parked, Store, Tally};
use crate::env::Env;
use crate::error::{Error, Kind, Result};
use crate::event::{DocumentId, Partition, Position};
use crate::mark::Mark;
use crate::planted::{Bug, planted};
use crate::rebuild::frozen;
use crate::retry::Backoff;

/// How a projector works. The defaults suit most.
#[derive(Clone, Debug)]
pub struct Options {
    /// About how much memory the cache of documents may take, in bytes.
    pub cache_bytes: usize,
    /// A batch ends when what it touched takes about so many bytes.
    pub batch_bytes: usize,
    /// A batch ends when it has been open for so long.
    pub batch_time: Duration,
    /// The largest page read from the log, in bytes of data.
    pub page_bytes: usize,
    /// How often a fold is tried again before its document is parked.
    pub retry: Backoff,
    /// Which failures of a fold are worth another try; by default those that say so.
    pub should_retry: fn(&FoldError) -> bool,
    /// How long a worker that went silent keeps others from taking its place. It is renewed after half of that.
    pub lease: Duration,
    /// The memory budget of the process, in which caches and batches count. Where it is used up, caches are emptied,
    /// and batches end early. Unlimited by default.
    pub budget: Budget,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: 24 << 20,
            batch_bytes: 20 << 20,
            batch_time: Duration::from_secs(1),
            page_bytes: 1 << 19,
            retry: Backoff::default(),
            should_retry: FoldError::is_transient,
            // A process that is killed is replaced within five seconds, and one that is idle sends few commands.
            lease: Duration::from_secs(4),
            budget: Budget::unlimited(),
        }
    }
}

/// What others can see of a running projector.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pulse {
    pub(crate) activity: Activity,
    pub(crate) events_per_second: f64,
    pub(crate) last_error: Option<String>,
    pub(crate) figures: Figures,
    /// The event that is being folded.
    pub(crate) folding: Option<Arc<Folding>>,
}

pub(crate) type SharedPulse = Arc<Mutex<Pulse>>;

/// Folds one projection.
pub(crate) struct Projector<S, P: Projection> {
    pub(crate) store: S,
    pub(crate) folder: Arc<Folder<P>>,
    /// The generation that it folds.
    pub(crate) number: u32,
    /// Whether it does so only while that one is live.
    pub(crate) only_live: bool,
    pub(crate) env: Arc<dyn Env>,
    pub(crate) options: Options,
    pub(crate) owner: String,
    pub(crate) pulse: SharedPulse,
}

/// A batch that is being committed.
struct InFlight {
    /// What became of it, and how long that took.
    task: JoinSet<Result<(Settled, Duration)>>,
    commit: Arc<Commit>,
    deltas: Vec<Delta>,
    batch: u64,
    /// The same, as the streams that are set aside count them.
    stream_batch: u64,
    /// The part of its tally that belongs to no single document.
    tally: Tally,
}

/// How long a page is folded before the run looks at everything else.
const SLICE: Duration = Duration::from_millis(50);
/// How long the projection's code may go on after the projector was told to stop.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// Why a run ended.
enum End {
    Stopped,
    /// Somebody else does this work.
    Replaced,
    /// This generation is not to be folded, at least for now.
    Frozen,
}

/// Why a projector has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was told to.
    Stopped,
    /// Its generation's checkpoint is [frozen](crate::rebuild::frozen), or there is no such generation any more.
    Frozen,
}

/// How often the fold of one event was tried.
struct Tries {
    partition: Partition,
    position: Position,
    count: u32,
    delays: Box<dyn Iterator<Item = Duration> + Send>,
}

impl Tries {
    fn at(failure: &Parked, options: &Options, env: &dyn Env) -> Self {
        let delays = Box::new(options.retry.delays(env.random()));
        // Once already, in the batch.
        Self { partition: failure.partition, position: failure.position, count: 1, delays }
    }
}

/// The state of one run, from a stored checkpoint on.
struct Run<'a, S, P: Projection> {
    projector: &'a Projector<S, P>,
    pages: mpsc::Receiver<Result<Routed<P::Event>>>,
    desk: Desk<P::Document>,
    /// A page of which a part is folded.
    page: Option<Routed<P::Event>>,
    /// What documents that are kept, and those of the batch, take of the memory budget.
    kept: Share,
    in_hand: Share,
    /// When the lease is to be renewed.
    renewal: Instant,
    /// What is stored.
    checkpoint: Checkpoint,
    in_flight: Option<InFlight>,
    /// When the batch in hand was begun.
    begun: Option<Instant>,
    at_head: bool,
    some_streams_parked: bool,
    rate: Rate,
    stop: watch::Receiver<bool>,
    _reader: JoinSet<()>,
}

impl<S: Store, P: Projection> Projector<S, P> {
    /// Runs until told to stop, finishing the batch in hand, or until its generation is frozen. Nothing else ends it: where the
    /// store fails it waits and goes on from the checkpoint.
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

    /// Takes the lease, then works from the stored checkpoint on.
    async fn work(&self, stop: &mut watch::Receiver<bool>) -> Result<End> {
        /// How often one that stands by looks whether its generation is still wanted.
        const LOOK_EVERY: Duration = Duration::from_secs(1);
        loop {
            if !self.is_wanted().await? {
                return Ok(End::Frozen);
            }
            let Claim::Theirs { ends_in } = self.claim().await? else { break };
            self.show(|pulse| pulse.activity = Activity::Standby);
            // Not longer than a lease of our own: the clock that measures theirs may jump.
            let until = Instant::now() + ends_in.min(self.options.lease.max(LOOK_EVERY));
            while Instant::now() < until {
                tokio::select! { biased;
                    () = stopped(stop) => return Ok(End::Stopped),
                    () = sleep_until(until.min(Instant::now() + LOOK_EVERY)) => {}
                }
                // Whoever has the lease may not notice for long that another generation is live.
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
            desk: Desk::new(checkpoint.mark.clone(), self.options.cache_bytes),
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

    /// Whether this generation is still to be folded: one that others switch from is not, and whoever folds it helps them.
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
                    // What is done is handed in all the same: workers that are slower than their lease would else
                    // replace each other for ever, and none would get on.
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

    /// Folds a part of a page into the batch in hand: as much as fits into a slice of time, so that a batch of slow folds ends
    /// in time, too.
    async fn fold(&mut self, mut page: Routed<P::Event>) -> Result<()> {
        let Projector { store, folder, env, .. } = self.projector;
        // Also for the rest of a page: a commit in between may have dropped documents that it needs.
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
        // In place nothing else runs while a slice is folded, so slices are small there.
        let events = if threads::in_place() { 512 } else { usize::MAX };
        let (page, done) = self
            .on_desk(move |desk| {
                desk.place(missing, records);
                let done = folder.apply(desk, &mut page, Portion { events, time: SLICE }, now);
                (page, done)
            })
            .await?;
        // A batch is counted and never refused.
        let _ = self.in_hand.resize(self.desk.documents.touched_bytes());
        self.at_head = done && !page.more;
        self.page = (!done).then_some(page);
        Ok(())
    }

    /// Has the projection's code work on the desk, on a thread of its own.
    async fn on_desk<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Desk<P::Document>) -> T + Send + 'static,
    ) -> Result<T> {
        // If the code does not come back, this run ends, and nobody misses the desk.
        let mut desk = std::mem::replace(&mut self.desk, Desk::new(Mark::default(), 0));
        let work = threads::run(move || {
            let done = work(&mut desk);
            (desk, done)
        });
        let (desk, done) = self.contained(work).await?;
        self.desk = desk;
        Ok(done)
    }

    /// Waits for code of the projection that runs elsewhere. The lease is renewed meanwhile; once the projector is told to stop,
    /// the code has a little time to come back.
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
                    // The run itself claims once more when the code is back, and finds out if the lease is lost.
                    if let Err(error) = self.projector.claim().await {
                        tracing::debug!(projection = %self.projector.folder.collection, %error, "lease not renewed");
                    }
                    renewal = Instant::now() + self.projector.renew_after();
                }
            }
        }
    }

    /// Whoever was ahead with a document may have set streams aside, and folded it without them. That was written before
    /// the document, so that it is seen if it is looked for after the document is loaded.
    fn look_at_streams_again(&mut self, ahead: bool) {
        if ahead && !self.projector.folder.routes_by_stream() && !planted(Bug::StreamsNotLookedAt) {
            self.some_streams_parked = true;
            self.desk.streams.forget();
        }
    }

    /// Ends the batch if it is time to. `false` means that somebody else does this work.
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

    /// Writes what is in hand and waits for it. A conflict brings it back into hand.
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

    /// Ends the batch: repairs what failed, then hands its writes to the store.
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
            changes.push(Changes { collection: collection.streams(), writes: streams.writes });
        }
        changes.push(Changes { collection: collection.clone(), writes: documents.writes });
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

    /// Deals with what became of the batch in flight. `false` means that somebody else does this work.
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
                // Somebody else does this work, or this very commit came through unseen, or a stream was set aside
                // in this batch and no longer is: rare enough to begin anew.
                if conflict.checkpoint || commit.changes.len() > 1 {
                    return false;
                }
                tracing::debug!(projection = %collection, documents = conflict.documents.len(), "conflict, folding anew");
                // The batch becomes part of the one in hand again, and what somebody else changed is folded anew.
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

    /// Counts what is kept in memory, and keeps less where there is no room for it.
    fn weigh(&mut self) {
        let documents = &mut self.desk.documents;
        let _ = self.in_hand.resize(documents.touched_bytes());
        if self.kept.resize(documents.bytes().saturating_sub(documents.touched_bytes())).is_err() {
            documents.forget();
            self.desk.streams.forget();
            // What is left is about to be written.
            let _ = self.kept.resize(0);
        }
    }

    /// Folds anew, from what is stored, the documents whose fold failed or that somebody else changed. A fold that
    /// fails is tried again as the policy says, then its document is parked.
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
                    let mut desk = Desk::careful(from.clone());
                    let ahead = folder.load_documents(&store, &mut desk, lost).await?;
                    folder.replay(&store, &*env, &mut desk, Replay::Range { from, through }).await?;
                    Ok((desk, ahead))
                })
            };
            let (mut desk, ahead) = self.contained(async { again.await? }).await?;
            self.look_at_streams_again(ahead);
            // All documents of a batch must be folded with and without the same streams.
            let waits = |parked: &&Parked| parked.position <= self.desk.progress.position(parked.partition);
            for parked in desk.streams.slots().filter_map(Slot::parked).filter(waits) {
                let known = self.desk.streams.get(&DocumentId::from(&parked.stream)).and_then(Slot::parked);
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

/// The page in hand, or else the next one.
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

/// A panic ends the work as an error does: it begins anew.
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
    // An error means that nobody is left who could say stop, which is as good.
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
