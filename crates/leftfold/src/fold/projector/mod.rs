//! The projector: folds the log into one projection's documents for as long as it runs.
//!
//! Reading and decoding, folding, and committing overlap. A separate task reads pages ahead, and a
//! batch is folded while the previous one is being committed. A batch ends at the end of the log,
//! at a bound in bytes or in time, or at a failed fold. Each document it changed is then written
//! once.
//!
//! **Invariant**: memory is only ever ahead of the store by the current batch and the one in
//! flight. On any doubt the projector discards both and continues from the stored checkpoint.
//!
//! `read_ahead` reads the log, `run` is the loop that folds, `repair` retries failed folds before
//! the end of a batch, and `commit` ends and writes it.

mod commit;
mod rate;
mod read_ahead;
mod repair;
mod run;

use std::sync::{Arc, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use self::rate::Rate;
use self::read_ahead::read_ahead;
use self::run::Run;
use super::batch::FoldState;
use super::folder::Folder;
use super::pulse::{Activity, Pulse, SharedPulse};
use super::{FoldOptions, Projection};
use crate::backoff::Backoff;
use crate::budget::Use;
use crate::documents::{Claim, frozen};
use crate::env::Env;
use crate::error::{Error, Kind, Result};
use crate::store::Store;

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
                    tracing::warn!(projection = %self.folder.collection, %error, "projection failed, retrying");
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
            tracing::debug!(projection = %self.folder.collection, %error, "lease not released, it will expire");
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
            state: FoldState::new(checkpoint.mark.clone(), self.options.cache_bytes),
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

/// Turns a panic into an error, so that the work starts over.
async fn unpanicked<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|context| {
        let poll = std::panic::AssertUnwindSafe(|| work.as_mut().poll(context));
        std::panic::catch_unwind(poll).unwrap_or_else(|_| {
            Poll::Ready(Err(Error::new(Kind::Stopped, "folding: the projector panicked; see the log")))
        })
    })
    .await
}

pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that no sender is left to request a stop, which counts as a stop.
    let _ = stop.wait_for(|stop| *stop).await;
}
