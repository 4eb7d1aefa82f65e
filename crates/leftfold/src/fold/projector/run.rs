//! One run of a projector, from a stored checkpoint on.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::super::batch::{FoldState, Portion};
use super::super::load::is_ahead;
use super::super::pulse::Activity;
use super::super::routed::Routed;
use super::super::threads;
use super::commit::{InFlight, wait_for};
use super::rate::Rate;
use super::{End, Projector, stopped};
use crate::budget::Share;
use crate::documents::{Checkpoint, Claim};
use crate::error::{Error, Kind, Result};
use crate::fold::Projection;
use crate::mark::Mark;
use crate::mutant;
use crate::store::Store;

/// The longest time to fold a page before the run checks everything else.
const SLICE: Duration = Duration::from_millis(50);

/// The time the projection's code may continue after a stop request.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// The state of one run, from a stored checkpoint on.
pub(super) struct Run<'a, S, P: Projection> {
    pub(super) projector: &'a Projector<S, P>,
    pub(super) pages: mpsc::Receiver<Result<Routed<P::Event>>>,
    pub(super) state: FoldState<P::Document>,
    /// A partly folded page.
    pub(super) page: Option<Routed<P::Event>>,
    /// The shares of cached documents, and of the batch's documents, in the memory budget.
    pub(super) kept: Share,
    pub(super) in_hand: Share,
    /// The time when the lease must be renewed.
    pub(super) renewal: Instant,
    /// The stored checkpoint.
    pub(super) checkpoint: Checkpoint,
    pub(super) in_flight: Option<InFlight>,
    /// The time when the current batch began.
    pub(super) begun: Option<Instant>,
    pub(super) at_head: bool,
    pub(super) some_streams_parked: bool,
    pub(super) rate: Rate,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) _reader: JoinSet<()>,
}

impl<S: Store, P: Projection> Run<'_, S, P> {
    pub(super) async fn go(mut self, stop: &mut watch::Receiver<bool>) -> Result<End> {
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
        let missing = folder.missing(&self.state, &page);
        if page.is_untouched() {
            let (needed, loaded) = (page.applications(), missing.len() as u64);
            self.projector.show(|pulse| pulse.figures.looked_up(needed, loaded));
        }
        let mut records = Vec::new();
        if !missing.is_empty() {
            records = store.load(&folder.collection, missing.clone()).await?;
            self.look_at_streams_again(is_ahead(&records, &self.state.progress));
        }
        let streams = folder.missing_streams(&self.state, &page, self.some_streams_parked);
        if !streams.is_empty() {
            self.some_streams_parked = true;
            folder.load_streams(store, &mut self.state, streams).await?;
        }
        self.begun.get_or_insert_with(Instant::now);
        let (folder, now) = (Arc::clone(folder), env.now());
        // When code runs in place, nothing else runs during a slice, so slices are small there.
        let events = if threads::in_place() { 512 } else { usize::MAX };
        let (page, done) = self
            .on_state(move |state| {
                state.place(missing, records);
                let done = folder.apply(state, &mut page, Portion { events, time: SLICE }, now);
                (page, done)
            })
            .await?;
        // The budget counts a batch but never refuses it.
        let _ = self.in_hand.resize(self.state.documents.touched_bytes());
        self.at_head = done && !page.more;
        self.page = (!done).then_some(page);
        Ok(())
    }

    /// Runs the projection's code on the state, on a separate thread.
    pub(super) async fn on_state<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut FoldState<P::Document>) -> T + Send + 'static,
    ) -> Result<T> {
        // If the code does not return, this run ends and the state is not needed again.
        let mut state = std::mem::replace(&mut self.state, FoldState::new(Mark::default(), 0));
        let work = threads::run(move || {
            let done = work(&mut state);
            (state, done)
        });
        let (state, done) = self.contained(work).await?;
        self.state = state;
        Ok(done)
    }

    /// Waits for code of the projection that runs on another thread, and renews the lease
    /// meanwhile. After a stop request, the code has a short time to return.
    pub(super) async fn contained<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
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
                    let message = "stopping: the projection's code did not return in time; its batch is \
                        folded at the next start";
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
    pub(super) fn look_at_streams_again(&mut self, ahead: bool) {
        mutant!(StreamsNotLookedAt => return);
        if ahead && !self.projector.folder.routes_by_stream() {
            self.some_streams_parked = true;
            self.state.streams.forget();
        }
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
