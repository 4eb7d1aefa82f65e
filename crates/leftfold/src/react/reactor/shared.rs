//! State shared by all parts of a reactor: the store, the reactions, the time, and the counters.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::backoff::Backoff;
use crate::env::Env;
use crate::error::{Error, Kind, Result};
use crate::mutant;
use crate::react::define::Definition;
use crate::react::handler::Hands;
use crate::react::plan::planner::SWEEP_EVERY;
use crate::react::reactor::ReactorCounts;
use crate::react::run::heartbeat::Heartbeat;
use crate::react::run::running::Running;
use crate::react::store::{DocumentSource, ReactionStore, Registered};
use crate::react::task::TaskMoment;

/// The interval at which the store's clock is read.
const CLOCK_EVERY: Duration = Duration::from_secs(30);

/// The stop signal. Waiters wake in the order in which they began to wait, so that simulations are
/// deterministic.
#[derive(Default)]
struct Stop {
    is_told: AtomicBool,
    told: Notify,
}

impl Stop {
    fn tell(&self) {
        self.is_told.store(true, Ordering::Relaxed);
        self.told.notify_waiters();
    }
}

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
    /// The registrations when they were last read.
    registry: Mutex<BTreeMap<String, Registered>>,
    /// The feeds that this process follows, each with the time since which it has unplanned
    /// changes.
    behind: Mutex<BTreeMap<DocumentSource, Option<Instant>>>,
    counts: Mutex<ReactorCounts>,
    /// The store's time, and the local instant at which it was read.
    clock: Mutex<(Timestamp, Instant)>,
    stop: Stop,
    to_stir: Notify,
}

impl<S: ReactionStore> Shared<S> {
    /// Creates the state of a reactor that does nothing yet.
    pub(crate) async fn new(store: S, env: Arc<dyn Env>, owner: String) -> Result<Self> {
        let now = ask_time(&store).await?;
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
            registry: Mutex::default(),
            behind: Mutex::default(),
            counts: Mutex::default(),
            clock: Mutex::new(now),
            stop: Stop::default(),
            to_stir: Notify::new(),
        })
    }

    /// Returns the store's time, estimated without a request to the store.
    pub(crate) fn now(&self) -> Timestamp {
        let (time, at) = *lock(&self.clock);
        crate::react::define::later(time, at.elapsed())
    }

    #[expect(clippy::cast_precision_loss, reason = "chance need not be exact")]
    pub(crate) fn moment(&self) -> TaskMoment {
        let (version, chance) = (self.env.random() >> 1, self.env.random());
        // Versions are never 0: that is the version of a task that was never saved.
        TaskMoment {
            now: self.now(),
            version: version.max(1),
            chance: (chance >> 11) as f64 / (1_u64 << 53) as f64,
        }
    }

    pub(crate) fn stop(&self) {
        self.stop.tell();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.is_told.load(Ordering::Relaxed)
    }

    pub(crate) async fn stopping(&self) {
        // This order matters: a stop after this line wakes the waiter.
        let heard = self.stop.told.notified();
        if !self.is_stopping() {
            heard.await;
        }
    }

    /// Waits for this time, or until the reactor stops.
    pub(crate) async fn wait(&self, time: Duration) {
        let _ = timeout(time, self.stopping()).await;
    }

    pub(crate) fn pauses(&self) -> impl Iterator<Item = Duration> + Send + use<S> {
        let backoff =
            Backoff::default().first(Duration::from_millis(50)).most(Duration::from_secs(5)).without_limit();
        backoff.delays(self.env.random())
    }

    pub(crate) fn failed(&self, error: &Error, doing: &str) {
        tracing::warn!(%error, "{doing}; trying again");
        self.count(|counts| counts.failures += 1);
    }

    pub(crate) fn count(&self, count: impl FnOnce(&mut ReactorCounts)) {
        count(&mut lock(&self.counts));
    }

    /// Returns the counters of this process.
    pub(crate) fn counts(&self) -> ReactorCounts {
        lock(&self.counts).clone()
    }

    /// Returns the lag of each feed that this process follows.
    pub(crate) fn lags(&self) -> BTreeMap<DocumentSource, Duration> {
        let lag = |since: &Option<Instant>| since.map_or(Duration::ZERO, |since| since.elapsed());
        lock(&self.behind).iter().map(|(on, since)| (on.clone(), lag(since))).collect()
    }

    /// Records that a feed has unplanned changes.
    pub(crate) fn falls_behind(&self, on: &DocumentSource) {
        lock(&self.behind).entry(on.clone()).or_default().get_or_insert_with(Instant::now);
    }

    /// Records that all changes of a feed are planned.
    pub(crate) fn keeps_up(&self, on: &DocumentSource) {
        lock(&self.behind).insert(on.clone(), None);
    }

    /// Records that this process no longer follows a feed.
    pub(crate) fn follows_no_more(&self, on: &DocumentSource) {
        lock(&self.behind).remove(on);
    }

    pub(crate) async fn refresh(&self) -> Result<Vec<Registered>> {
        let registered = self.store.registered().await?;
        *lock(&self.registry) = registered.iter().map(|one| (one.name.clone(), one.clone())).collect();
        Ok(registered)
    }

    /// Returns this process's definition of a reaction, if it is the registered one.
    pub(crate) fn known(&self, name: &str) -> Option<Arc<Definition>> {
        let definition = self.definitions.iter().find(|definition| definition.name == name)?;
        let registry = lock(&self.registry);
        let registered = registry.get(name)?;
        let is_same = definition.text == registered.definition
            && definition.rules.version >= registered.code
            && definition.on == registered.on;
        is_same.then(|| Arc::clone(definition))
    }

    /// Returns all definitions of this process that are the registered ones.
    pub(crate) fn current(&self) -> Vec<Arc<Definition>> {
        self.definitions.iter().filter_map(|definition| self.known(&definition.name)).collect()
    }

    pub(crate) async fn wake(&self) -> Result<()> {
        self.store.wake().await
    }

    /// Wakes all processes soon.
    pub(crate) fn wake_soon(&self) {
        self.to_stir.notify_one();
    }

    /// Changes the registration of a reaction. Returns whether it is registered.
    pub(crate) async fn change(&self, name: &str, change: impl Fn(&mut Registered)) -> Result<bool> {
        let mut pauses = self.pauses();
        loop {
            let registered = self.store.registered().await?;
            let Some(before) = registered.into_iter().find(|one| one.name == name) else { return Ok(false) };
            let seen = before.version;
            let mut after = Registered { version: self.env.random() >> 1, ..before };
            change(&mut after);
            if self.store.register(Some(seen), after).await? {
                return Ok(true);
            }
            sleep(pauses.next().unwrap_or_default()).await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the store's time and the local instant at which it was read. A slow answer may be
/// outdated, so the request is repeated.
async fn ask_time<S: ReactionStore>(store: &S) -> Result<(Timestamp, Instant)> {
    const SOON: Duration = Duration::from_millis(100);
    const TRIES: usize = 10;
    let mut best = None;
    for _ in 0..TRIES {
        let asked = Instant::now();
        let time = store.time().await?;
        let (now, took) = (Instant::now(), asked.elapsed());
        if best.is_none_or(|(least, _)| took < least) {
            best = Some((took, (time, now)));
        }
        mutant!(LateTime => break);
        if took < SOON {
            break;
        }
    }
    let nothing = || Error::new(Kind::Unavailable, "asking for the store's time: it was not told");
    best.map(|(_, found)| found).ok_or_else(nothing)
}

pub(crate) async fn keep_time<S: ReactionStore>(shared: Arc<Shared<S>>) {
    while !shared.is_stopping() {
        shared.wait(CLOCK_EVERY).await;
        match ask_time(&shared.store).await {
            Ok(now) => *lock(&shared.clock) = now,
            Err(error) => shared.failed(&error, "asking for the store's time"),
        }
    }
}

pub(crate) async fn stir_when_asked<S: ReactionStore>(shared: Arc<Shared<S>>) {
    loop {
        tokio::select! { biased;
            () = shared.stopping() => return,
            () = shared.to_stir.notified() => {}
        }
        if let Err(error) = shared.wake().await {
            shared.failed(&error, "waking others up");
        }
    }
}

/// The access of handlers to the store.
pub(crate) struct Hand<S>(pub(crate) Arc<Shared<S>>);

impl<S: ReactionStore> Hands for Hand<S> {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn random(&self) -> u64 {
        self.0.env.random()
    }

    fn throttle(
        &self,
        reaction: &str,
        until: Timestamp,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<()>> + Send>> {
        let (shared, reaction) = (Arc::clone(&self.0), reaction.to_owned());
        Box::pin(async move {
            mutant!(ThrottleNobody => return Ok(()));
            let later = |registered: &mut Registered| {
                registered.throttled = Some(registered.throttled.map_or(until, |before| before.max(until)));
            };
            shared.change(&reaction, later).await.map(drop)
        })
    }

    fn pause(&self, reaction: &str, why: &str) -> std::pin::Pin<Box<dyn Future<Output = Result<()>> + Send>> {
        let (shared, reaction, why) = (Arc::clone(&self.0), reaction.to_owned(), why.to_owned());
        Box::pin(async move {
            let pause = |registered: &mut Registered| {
                registered.paused = true;
                registered.paused_because = Some(why.clone());
            };
            shared.change(&reaction, pause).await.map(drop)
        })
    }

    fn take_lease(
        &self,
        name: String,
        owner: String,
        length: Duration,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<Option<u64>>> + Send>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move { shared.store.take_lease(&name, &owner, length).await })
    }

    fn give_lease(
        &self,
        name: String,
        owner: String,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<()>> + Send>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move { shared.store.give_lease(&name, &owner).await })
    }

    fn as_any(&self) -> &dyn Any {
        &self.0.store
    }
}
