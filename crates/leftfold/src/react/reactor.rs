//! The front door of reactions: which run here, and what can be asked of them.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::context::Hands;
use super::events;
use super::filter::Filter;
use super::planner::{self, SWEEP_EVERY};
use super::reaction::{Definition, Reaction};
use super::runner::{self, Running};
use super::store::{Change, Depth, On, Query, Reactive, Registered};
use super::task::{Moment, State, Task, TaskKey};
use super::value::Value;
use crate::env::{Env, System, event_id};
use crate::error::{Error, Invalid, Kind, Result};
use crate::planted::{Bug, planted};
use crate::retry::Backoff;

/// How many tasks are changed at once.
const PIECE: usize = 500;
/// How often the store's clock is looked at.
const CLOCK_EVERY: Duration = Duration::from_secs(30);

/// Describes which reactions run on a store, and what of them this process does.
///
/// ```
/// # use leftfold::react::{Plain, Reaction, Reactor};
/// # use leftfold::{DocumentId, Json, Memory};
/// # use serde::Deserialize;
/// #[derive(Deserialize)]
/// struct Order { paid: bool }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leftfold::Result<()> {
/// let store = Memory::default();
/// let parcels = Reaction::on_plain("orders", "parcel")
///     .when(|order: &Order| order.paid)
///     .run(async |ctx| {
///         let _order = ctx.document().await?;
///         println!("{} is on its way", ctx.id());
///         Ok(())
///     });
/// let reacting = Reactor::on(store.clone()).reaction(parcels).start().await?;
/// store.write_plain(&Plain::new("orders")?, DocumentId::new("o-1")?, Some(Json::parse(r#"{"paid":true}"#)?));
/// reacting.idle().await?;
/// assert_eq!(reacting.counts().done, 1);
/// reacting.stop(std::time::Duration::from_secs(5)).await;
/// # Ok(()) }
/// ```
#[must_use = "nothing runs until it is started"]
pub struct Reactor<S> {
    store: S,
    env: Arc<dyn Env>,
    owner: Option<String>,
    reactions: Vec<Reaction>,
    plans: bool,
    runs: Option<Vec<String>>,
    concurrency: usize,
    sweep_every: Duration,
}

impl<S: Reactive> Reactor<S> {
    /// Reactions on this store, none yet.
    pub fn on(store: S) -> Self {
        Self {
            store,
            env: Arc::new(System),
            owner: None,
            reactions: Vec::new(),
            plans: true,
            runs: None,
            concurrency: 256,
            sweep_every: SWEEP_EVERY,
        }
    }

    /// Adds a reaction.
    pub fn reaction(mut self, reaction: Reaction) -> Self {
        self.reactions.push(reaction);
        self
    }

    /// Whether this process plans tasks, as it does otherwise. Some process that knows a reaction must plan for it.
    pub fn plans(self, plans: bool) -> Self {
        Self { plans, ..self }
    }

    /// Which of the reactions run here: all if it is not said.
    pub fn runs(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { runs: Some(names.into_iter().map(Into::into).collect()), ..self }
    }

    /// How many handlers run here at the same time, of all reactions together: 256 if it is not said.
    pub fn concurrency(self, most: usize) -> Self {
        Self { concurrency: most, ..self }
    }

    /// How often to look for tasks that are to be forgotten: once a minute if it is not said.
    pub fn sweep_every(self, period: Duration) -> Self {
        Self { sweep_every: period, ..self }
    }

    /// The name under which this process works. Never give two living processes the same name.
    pub fn worker(self, name: impl Into<String>) -> Self {
        Self { owner: Some(name.into()), ..self }
    }

    /// Where chance comes from.
    pub fn env(self, env: impl Env) -> Self {
        Self { env: Arc::new(env), ..self }
    }

    /// Registers the reactions, and plans and runs until it is [stopped](Reacting::stop).
    pub async fn start(self) -> Result<Reacting<S>> {
        let definitions = self.reactions.into_iter().map(|one| one.0).collect::<Result<Vec<_>, _>>()?;
        let mut names = BTreeSet::new();
        if let Some(twice) = definitions.iter().find(|one| !names.insert(one.name.clone())) {
            return Err(Invalid::new("reaction", &twice.name, "each name once").into());
        }
        let runs: Vec<_> = match &self.runs {
            None => definitions.clone(),
            Some(wanted) => {
                if let Some(unknown) = wanted.iter().find(|name| !names.contains(*name)) {
                    let known: Vec<_> = names.iter().map(String::as_str).collect();
                    let expected = format!("a reaction that was added: {}", known.join(", "));
                    return Err(Invalid::new("reaction to run", unknown, expected).into());
                }
                definitions.iter().filter(|one| wanted.contains(&one.name)).cloned().collect()
            }
        };
        let places: BTreeSet<_> = definitions.iter().filter_map(|one| one.on.clone()).collect();
        let places: Vec<_> = places.into_iter().collect();
        self.store.prepare_reactions(&places).await?;
        let owner = self.owner.unwrap_or_else(|| event_id(&*self.env).to_string());
        let now = ask_time(&self.store).await?;
        let shared = Arc::new(Shared {
            store: self.store,
            env: self.env,
            owner,
            definitions,
            runs,
            concurrency: self.concurrency.max(1),
            sweep_every: self.sweep_every,
            running: Running::default(),
            registry: Mutex::default(),
            counts: Mutex::default(),
            clock: Mutex::new(now),
            stop: AtomicBool::new(false),
            stopped: Notify::new(),
            to_stir: Notify::new(),
        });
        for definition in &shared.definitions {
            planner::register(&shared, definition).await?;
        }
        if self.plans {
            for definition in &shared.definitions {
                events::begin(&shared, definition).await?;
            }
        }
        shared.refresh().await?;
        let mut planners = JoinSet::new();
        if self.plans {
            for on in places {
                planners.spawn(planner::follow(Arc::clone(&shared), on));
            }
            planners.spawn(planner::look_after(Arc::clone(&shared)));
            for definition in shared.definitions.iter().filter(|one| one.events.is_some()) {
                planners.spawn(events::follow(Arc::clone(&shared), Arc::clone(definition)));
            }
        }
        planners.spawn(keep_time(Arc::clone(&shared)));
        planners.spawn(stir_when_asked(Arc::clone(&shared)));
        let end = watch::Sender::new(None);
        let runner = (!shared.runs.is_empty())
            .then(|| tokio::spawn(runner::run(Arc::clone(&shared), end.subscribe())));
        let runner = tokio::sync::Mutex::new(runner);
        Ok(Reacting(Arc::new(Handle { shared, planners: tokio::sync::Mutex::new(planners), runner, end })))
    }
}

/// What all parts of a reactor have.
pub(super) struct Shared<S> {
    pub(super) store: S,
    pub(super) env: Arc<dyn Env>,
    pub(super) owner: String,
    pub(super) definitions: Vec<Arc<Definition>>,
    /// Those that run here.
    pub(super) runs: Vec<Arc<Definition>>,
    pub(super) concurrency: usize,
    pub(super) sweep_every: Duration,
    pub(super) running: Running,
    /// What was registered when it was last looked at.
    registry: Mutex<BTreeMap<String, Registered>>,
    counts: Mutex<Counts>,
    /// The store's time, and when it was that.
    clock: Mutex<(Timestamp, Instant)>,
    stop: AtomicBool,
    /// Those who wait are woken in the order in which they came, which a `watch` does not promise: simulations depend on that.
    stopped: Notify,
    to_stir: Notify,
}

impl<S: Reactive> Shared<S> {
    /// The store's time, as far as it can be told without asking.
    pub(super) fn now(&self) -> Timestamp {
        let (time, at) = *lock(&self.clock);
        super::retry::later(time, at.elapsed())
    }

    #[expect(clippy::cast_precision_loss, reason = "chance need not be exact")]
    pub(super) fn moment(&self) -> Moment {
        let (version, chance) = (self.env.random() >> 1, self.env.random());
        // Versions are never 0, which is what a task has that was never kept.
        Moment {
            now: self.now(),
            version: version.max(1),
            chance: (chance >> 11) as f64 / (1_u64 << 53) as f64,
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.stopped.notify_waiters();
    }

    pub(super) async fn stopping(&self) {
        let mut stopped = pin!(self.stopped.notified());
        // From here on nothing is missed, also between the look and the wait.
        stopped.as_mut().enable();
        if !self.is_stopping() {
            stopped.await;
        }
    }

    /// Waits, unless it is to stop.
    pub(super) async fn wait(&self, time: Duration) {
        let _ = timeout(time, self.stopping()).await;
    }

    pub(super) fn pauses(&self) -> impl Iterator<Item = Duration> + Send + use<S> {
        let backoff =
            Backoff::default().first(Duration::from_millis(50)).most(Duration::from_secs(5)).without_limit();
        backoff.delays(self.env.random())
    }

    pub(super) fn failed(&self, error: &Error, doing: &str) {
        tracing::warn!(%error, "{doing}; trying again");
        self.count(|counts| counts.failures += 1);
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut lock(&self.counts));
    }

    pub(super) async fn refresh(&self) -> Result<Vec<Registered>> {
        let registered = self.store.registered().await?;
        *lock(&self.registry) = registered.iter().map(|one| (one.name.clone(), one.clone())).collect();
        Ok(registered)
    }

    /// The reaction as it is here, if it is what is registered.
    pub(super) fn known(&self, name: &str) -> Option<Arc<Definition>> {
        let definition = self.definitions.iter().find(|definition| definition.name == name)?;
        let registry = lock(&self.registry);
        let registered = registry.get(name)?;
        let is_same = definition.text == registered.definition
            && definition.rules.version >= registered.code
            && definition.on == registered.on;
        is_same.then(|| Arc::clone(definition))
    }

    /// All reactions that are here as they are registered.
    pub(super) fn current(&self) -> Vec<Arc<Definition>> {
        self.definitions.iter().filter_map(|definition| self.known(&definition.name)).collect()
    }

    pub(super) async fn stir(&self) -> Result<()> {
        self.store.stir().await
    }

    /// Has everybody look, soon.
    pub(super) fn stir_soon(&self) {
        self.to_stir.notify_one();
    }

    /// Changes what is known of a reaction. Answers whether it is known.
    pub(super) async fn change(&self, name: &str, change: impl Fn(&mut Registered)) -> Result<bool> {
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

/// The store's time, and when it was that. What takes long to be answered is asked again: it may be long past.
async fn ask_time<S: Reactive>(store: &S) -> Result<(Timestamp, Instant)> {
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
        if took < SOON || planted(Bug::LateTime) {
            break;
        }
    }
    let nothing = || Error::new(Kind::Unavailable, "asking for the store's time: it was not told");
    best.map(|(_, found)| found).ok_or_else(nothing)
}

async fn keep_time<S: Reactive>(shared: Arc<Shared<S>>) {
    while !shared.is_stopping() {
        shared.wait(CLOCK_EVERY).await;
        match ask_time(&shared.store).await {
            Ok(now) => *lock(&shared.clock) = now,
            Err(error) => shared.failed(&error, "asking for the store's time"),
        }
    }
}

async fn stir_when_asked<S: Reactive>(shared: Arc<Shared<S>>) {
    loop {
        tokio::select! { biased;
            () = shared.stopping() => return,
            () = shared.to_stir.notified() => {}
        }
        if let Err(error) = shared.stir().await {
            shared.failed(&error, "waking others up");
        }
    }
}

/// What handlers reach the store with.
pub(super) struct Hand<S>(pub(super) Arc<Shared<S>>);

impl<S: Reactive> Hands for Hand<S> {
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
            if planted(Bug::ThrottleNobody) {
                return Ok(());
            }
            let later = |registered: &mut Registered| {
                registered.throttled = Some(registered.throttled.map_or(until, |before| before.max(until)));
            };
            shared.change(&reaction, later).await.map(drop)
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

/// What a reactor has done since it was started.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counts {
    /// Changes of tasks because documents changed.
    pub planned: u64,
    /// Runs that were begun.
    pub claimed: u64,
    /// Runs that succeeded.
    pub done: u64,
    /// Runs that found another document than they were planned for.
    pub stale: u64,
    /// Tasks that failed too often.
    pub failed: u64,
    /// Runs that failed, and are tried again.
    pub retried: u64,
    /// Runs that asked for another time.
    pub deferred: u64,
    /// Runs that held up all others of their reaction.
    pub throttled: u64,
    /// Claims of others that had ended, and were taken over.
    pub takeovers: u64,
    /// Claims that others took over from here.
    pub lost: u64,
    /// Tasks that were forgotten.
    pub swept: u64,
    /// How often the store failed.
    pub failures: u64,
    /// How many handlers took up to so many milliseconds: 1, 10, 100, 1,000, 10,000, more.
    pub took: [u64; 6],
}

impl Counts {
    pub(super) fn handler(&mut self, took: Duration) {
        const BOUNDS: [u128; 5] = [1, 10, 100, 1_000, 10_000];
        let at = BOUNDS.iter().position(|bound| took.as_millis() < *bound).unwrap_or(BOUNDS.len());
        self.took[at] += 1;
    }
}

struct Handle<S> {
    shared: Arc<Shared<S>>,
    planners: tokio::sync::Mutex<JoinSet<()>>,
    runner: tokio::sync::Mutex<Option<tokio::task::JoinHandle<()>>>,
    end: watch::Sender<Option<Instant>>,
}

/// Reactions at work. Cloning gives another handle; when the last is gone, everything ends where it is.
pub struct Reacting<S>(Arc<Handle<S>>);

impl<S> Clone for Reacting<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> Drop for Handle<S> {
    fn drop(&mut self) {
        if let Some(runner) = self.runner.get_mut().take() {
            runner.abort();
        }
    }
}

impl<S: Reactive> Reacting<S> {
    fn store(&self) -> &S {
        &self.0.shared.store
    }

    /// What was done here so far.
    pub fn counts(&self) -> Counts {
        lock(&self.0.shared.counts).clone()
    }

    /// How many tasks there are, by reaction and state, whoever made them.
    pub async fn depths(&self) -> Result<BTreeMap<String, Depth>> {
        self.store().task_depths().await
    }

    /// All reactions that anybody has registered.
    pub async fn reactions(&self) -> Result<Vec<Registered>> {
        self.store().registered().await
    }

    /// Tasks, by reaction and document, after one of these.
    pub async fn tasks(&self, query: Query, after: Option<TaskKey>, most: usize) -> Result<Vec<Task>> {
        self.store().list_tasks(query, after, most).await
    }

    /// A task.
    pub async fn task(&self, key: TaskKey) -> Result<Option<Task>> {
        Ok(self.store().load_tasks(vec![key]).await?.pop())
    }

    /// Has tasks run again, now; those that are running, afterwards. Events that were handled are not handled again. Answers how many. With a filter, only those whose documents match it.
    pub async fn retry(&self, query: Query, documents: Option<&Filter>) -> Result<u64> {
        let shared = &self.0.shared;
        if let Some(name) = &query.reaction
            && !self.reactions().await?.iter().any(|one| one.name == *name)
        {
            return Err(Invalid::new("reaction", name, "one that is registered").into());
        }
        let (mut after, mut retried) = (None, 0);
        loop {
            let mut tasks = self.store().list_tasks(query.clone(), after, PIECE).await?;
            let Some(last) = tasks.last() else { break };
            after = Some(last.key.clone());
            tasks.retain(Task::can_run_again);
            if let Some(filter) = documents {
                tasks = self.matching(tasks, filter).await?;
            }
            while !tasks.is_empty() {
                let count = tasks.len() as u64;
                let change = |task: Task| Change::Update(task.version, task.retry(shared.moment()));
                let refused = self.store().save_tasks(tasks.into_iter().map(change).collect()).await?;
                retried += count - refused.len() as u64;
                tasks = self.store().load_tasks(refused).await?;
                tasks.retain(|task| query.is(task) && task.can_run_again());
            }
        }
        if retried > 0 {
            shared.stir().await?;
        }
        Ok(retried)
    }

    /// Those of these tasks whose documents match.
    async fn matching(&self, tasks: Vec<Task>, filter: &Filter) -> Result<Vec<Task>> {
        let places: BTreeMap<_, _> =
            self.reactions().await?.into_iter().filter_map(|one| Some((one.name, one.on?))).collect();
        let mut by_place: BTreeMap<On, Vec<Task>> = BTreeMap::new();
        for task in tasks {
            if let Some(on) = places.get(&task.key.reaction) {
                by_place.entry(on.clone()).or_default().push(task);
            }
        }
        let (mut matching, now) = (Vec::new(), self.0.shared.now());
        for (on, tasks) in by_place {
            let ids = tasks.iter().map(|task| task.key.document.clone()).collect();
            let documents: BTreeMap<_, _> =
                self.store().current_documents(&on, ids).await?.into_iter().collect();
            let is_meant = |task: &Task| {
                let document = documents.get(&task.key.document);
                let value = document.and_then(|document| document.as_str().parse::<Value>().ok());
                value.is_some_and(|value| filter.matches(&value, now))
            };
            matching.extend(tasks.into_iter().filter(is_meant));
        }
        Ok(matching)
    }

    /// Has nobody begin a run of a reaction until it is [resumed](Self::resume). What runs goes on.
    pub async fn pause(&self, reaction: &str) -> Result<()> {
        self.set(reaction, |registered| registered.paused = true).await
    }

    /// Has a reaction run again that was paused or throttled.
    pub async fn resume(&self, reaction: &str) -> Result<()> {
        let run = |registered: &mut Registered| {
            registered.paused = false;
            registered.throttled = None;
        };
        self.set(reaction, run).await?;
        self.0.shared.stir().await
    }

    async fn set(&self, reaction: &str, change: impl Fn(&mut Registered)) -> Result<()> {
        if self.0.shared.change(reaction, change).await? {
            return Ok(());
        }
        Err(Invalid::new("reaction", reaction, "one that is registered").into())
    }

    /// Forgets the tasks whose time is over, of the reactions that are here. Answers how many. This happens by itself, too.
    pub async fn sweep(&self) -> Result<u64> {
        let places: BTreeSet<_> = self.0.shared.definitions.iter().filter_map(|one| one.on.clone()).collect();
        let mut swept = 0;
        for on in places {
            swept += self.0.shared.sweep(&on).await?;
        }
        Ok(swept)
    }

    /// Waits until nothing is left to do: every change so far is planned, nothing is due or running, and nothing will be within an hour by a retry or
    /// a debounce. What handlers cause is waited for, too. For tests.
    pub async fn idle(&self) -> Result<()> {
        self.idle_within(Duration::ZERO).await
    }

    /// The same, and nothing will be due within the horizon either: tries again and quiet times are waited for that long.
    pub async fn idle_within(&self, horizon: Duration) -> Result<()> {
        let mut quiet = 0;
        while quiet < 2 {
            // It is large, and those of callers would be as large.
            if Box::pin(self.is_idle(horizon)).await? {
                quiet += 1;
            } else {
                quiet = 0;
                sleep(Duration::from_millis(5)).await;
            }
        }
        Ok(())
    }

    async fn is_idle(&self, horizon: Duration) -> Result<bool> {
        let shared = &self.0.shared;
        if shared.running.count() > 0 {
            return Ok(false);
        }
        let registered = self.reactions().await?;
        let names: BTreeSet<_> = shared.definitions.iter().map(|one| one.name.as_str()).collect();
        let ours: Vec<_> = registered.into_iter().filter(|one| names.contains(one.name.as_str())).collect();
        if ours.iter().any(|one| one.comparing.is_some()) {
            return Ok(false);
        }
        let places: BTreeSet<_> = ours.iter().filter_map(|one| one.on.clone()).collect();
        for on in places {
            let Some(place) = self.store().feed_place(&planner::place_name(&on)).await? else {
                return Ok(false);
            };
            if self.store().has_changes(vec![on], place).await? {
                return Ok(false);
            }
        }
        for definition in shared.definitions.iter().filter(|one| one.events.is_some()) {
            if !events::is_caught_up(self.store(), definition).await? {
                return Ok(false);
            }
        }
        let names: Vec<_> = ours.iter().map(|one| one.name.clone()).collect();
        if !self.store().tasks_to_check(names.clone(), 1).await?.tasks.is_empty() {
            return Ok(false);
        }
        let end = super::retry::later(self.store().time().await?, horizon);
        for name in names {
            let states = vec![State::Pending, State::Running, State::Changed];
            let query = Query { reaction: Some(name.clone()), states, ..Query::default() };
            let is_paused = ours.iter().any(|one| one.name == name && one.paused);
            let mut after = None;
            loop {
                let open = self.store().list_tasks(query.clone(), after, PIECE).await?;
                let Some(last) = open.last() else { break };
                after = Some(last.key.clone());
                let is_near = |task: &Task| {
                    task.state != State::Pending || (!is_paused && task.due.is_some_and(|due| due <= end))
                };
                if open.iter().any(is_near) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Fails, and says which, if a task has failed. For tests.
    pub async fn assert_no_failures(&self) -> Result<()> {
        let query = Query { states: vec![State::Failed], ..Query::default() };
        let failed = self.store().list_tasks(query, None, 3).await?;
        if failed.is_empty() {
            return Ok(());
        }
        let said = |task: &Task| {
            let TaskKey { reaction, document } = &task.key;
            format!("{reaction} for {document}: {}", task.error.as_deref().unwrap_or("no error is known"))
        };
        let said: Vec<_> = failed.iter().map(said).collect();
        Err(Error::new(Kind::Store, format!("tasks have failed: {}", said.join("; "))))
    }

    /// Stops: nothing more is planned or begun here; what runs has until the deadline, and is then ended and given to others.
    pub async fn stop(&self, deadline: Duration) {
        let handle = &self.0;
        handle.end.send_replace(Some(Instant::now() + deadline));
        if let Some(runner) = handle.runner.lock().await.take() {
            let _ = runner.await;
        }
        handle.shared.stop();
        let mut planners = handle.planners.lock().await;
        while planners.join_next().await.is_some() {}
    }
}
