//! State shared by all parts of a reactor: the store, the reactions, the time, and the counters.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::clock::Clock;
use super::counts::ReactorCounts;
use super::lags::FeedLags;
use super::stop::Stop;
use crate::backoff::Backoff;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::react::define::Definition;
use crate::react::plan::SWEEP_EVERY;
use crate::react::run::{Heartbeat, Running};
use crate::react::store::{ReactionStore, Registered};
use crate::react::task::TaskMoment;

/// The state shared by all parts of a reactor.
pub(crate) struct Shared<S> {
    pub(crate) store: S,
    pub(crate) env: Arc<dyn Env>,
    /// The owner of leases.
    pub(crate) owner: String,
    /// The owner of claims, which sends heartbeats. It differs each time that a process of this
    /// name starts.
    pub(crate) worker: String,
    pub(crate) definitions: Vec<Arc<Definition>>,
    /// The reactions that run in this process.
    pub(crate) runs: Vec<Arc<Definition>>,
    pub(crate) concurrency: usize,
    pub(crate) sweep_every: Duration,
    pub(crate) running: Running,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) lags: FeedLags,
    /// The registrations when they were last read.
    pub(super) registry: Mutex<BTreeMap<String, Registered>>,
    pub(super) clock: Clock,
    counts: Mutex<ReactorCounts>,
    stop: Stop,
    to_wake: Notify,
}

impl<S: ReactionStore> Shared<S> {
    /// Creates the state of a reactor that does nothing yet.
    pub(super) async fn new(store: S, env: Arc<dyn Env>, owner: String) -> Result<Self> {
        let clock = Clock::read(&store).await?;
        let worker = format!("{owner}-{:06x}", env.random() & 0xff_ffff);
        Ok(Self {
            store,
            env,
            owner,
            worker,
            definitions: Vec::new(),
            runs: Vec::new(),
            concurrency: 1,
            sweep_every: SWEEP_EVERY,
            running: Running::default(),
            heartbeat: Heartbeat::default(),
            lags: FeedLags::default(),
            registry: Mutex::default(),
            clock,
            counts: Mutex::default(),
            stop: Stop::default(),
            to_wake: Notify::new(),
        })
    }

    /// Returns the store's time, estimated without a request to the store.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    #[expect(clippy::cast_precision_loss, reason = "the random number need not be exact")]
    pub(crate) fn moment(&self) -> TaskMoment {
        let (version, random) = (self.env.random() >> 1, self.env.random());
        // Versions are never 0: that is the version of a task that was never saved.
        TaskMoment {
            now: self.now(),
            version: version.max(1),
            random: (random >> 11) as f64 / (1_u64 << 53) as f64,
        }
    }

    pub(super) fn stop(&self) {
        self.stop.set();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.is_set()
    }

    pub(crate) async fn stopping(&self) {
        self.stop.wait().await;
    }

    /// Waits for this time, or until the reactor stops.
    pub(crate) async fn wait(&self, time: Duration) {
        let _ = timeout(time, self.stopping()).await;
    }

    /// Returns the pauses between attempts to reach the store.
    pub(crate) fn pauses(&self) -> impl Iterator<Item = Duration> + Send + use<S> {
        let backoff =
            Backoff::default().first(Duration::from_millis(50)).most(Duration::from_secs(5)).without_limit();
        backoff.delays(self.env.random())
    }

    /// Records that a request to the store failed, and will be repeated.
    pub(crate) fn failed(&self, error: &Error, doing: &str) {
        tracing::warn!(%error, doing, "the store failed; trying again");
        self.count(|counts| counts.failures += 1);
    }

    pub(crate) fn count(&self, count: impl FnOnce(&mut ReactorCounts)) {
        count(&mut lock(&self.counts));
    }

    /// Returns the counters of this process.
    pub(super) fn counts(&self) -> ReactorCounts {
        lock(&self.counts).clone()
    }

    /// Wakes all processes.
    pub(crate) async fn wake(&self) -> Result<()> {
        self.store.wake().await
    }

    /// Wakes all processes soon.
    pub(crate) fn wake_soon(&self) {
        self.to_wake.notify_one();
    }
}

/// Wakes all processes after [`Shared::wake_soon`].
pub(super) async fn keep_waking<S: ReactionStore>(shared: Arc<Shared<S>>) {
    loop {
        tokio::select! { biased;
            () = shared.stopping() => return,
            () = shared.to_wake.notified() => {}
        }
        if let Err(error) = shared.wake().await {
            shared.failed(&error, "waking other processes");
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
