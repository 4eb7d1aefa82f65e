//! The handle of running reactions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use leftfold_filter::Filter;
use serde::Serialize;
use tokio::sync::{Mutex, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use crate::error::{Error, Invalid, Kind, Result};
use crate::react::plan::events;
use crate::react::plan::planner;
use crate::react::reactor::shared::Shared;
use crate::react::run::loader::BYTES;
use crate::react::store::{
    Depth, DocumentSource, FoundDocument, Query, ReactionStore, Registered, TaskChange,
};
use crate::react::task::{State, Task, TaskKey};

/// The maximum number of tasks that are changed at once.
const PIECE: usize = 500;

/// Counters of a reactor since it was started.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReactorCounts {
    /// Changes of tasks because documents changed.
    pub planned: u64,
    /// Runs that began.
    pub claimed: u64,
    /// Runs that succeeded.
    pub done: u64,
    /// Runs whose document was not what the task was planned for.
    pub stale: u64,
    /// Tasks that failed too often.
    pub failed: u64,
    /// Runs that failed and will be retried.
    pub retried: u64,
    /// Runs whose handler deferred the task.
    pub deferred: u64,
    /// Runs that throttled their reaction.
    pub throttled: u64,
    /// Lost claims of other workers that this process reaped.
    pub takeovers: u64,
    /// Claims of this process that other workers took over.
    pub lost: u64,
    /// Tasks that were deleted.
    pub swept: u64,
    /// Failures of the store.
    pub failures: u64,
    /// The number of handlers by duration in milliseconds: below 1, 10, 100, 1,000 and 10,000, and
    /// longer.
    pub took: [u64; 6],
}

impl ReactorCounts {
    pub(crate) fn handler(&mut self, took: Duration) {
        const BOUNDS: [u128; 5] = [1, 10, 100, 1_000, 10_000];
        let at = BOUNDS.iter().position(|bound| took.as_millis() < *bound).unwrap_or(BOUNDS.len());
        self.took[at] += 1;
    }
}

struct Handle<S> {
    shared: Arc<Shared<S>>,
    planners: Mutex<JoinSet<()>>,
    runner: Mutex<Option<JoinHandle<()>>>,
    end: watch::Sender<Option<Instant>>,
}

/// A handle of running reactions. Cloning creates another handle; dropping the last one aborts all
/// work.
pub struct ReactorHandle<S>(Arc<Handle<S>>);

impl<S> Clone for ReactorHandle<S> {
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

impl<S: ReactionStore> ReactorHandle<S> {
    pub(crate) fn new(
        shared: Arc<Shared<S>>,
        planners: JoinSet<()>,
        runner: Option<JoinHandle<()>>,
        end: watch::Sender<Option<Instant>>,
    ) -> Self {
        let (planners, runner) = (Mutex::new(planners), Mutex::new(runner));
        Self(Arc::new(Handle { shared, planners, runner, end }))
    }

    fn store(&self) -> &S {
        &self.0.shared.store
    }

    /// Returns the counters of this process.
    pub fn counts(&self) -> ReactorCounts {
        self.0.shared.counts()
    }

    /// Returns the lag of each feed of changes that this process follows: the time since which it
    /// has had unplanned changes. The lag is zero if all changes are planned.
    pub fn feed_lags(&self) -> BTreeMap<DocumentSource, Duration> {
        self.0.shared.lags()
    }

    /// Returns the number of tasks of all processes, by reaction and state.
    pub async fn depths(&self) -> Result<BTreeMap<String, Depth>> {
        self.store().task_depths().await
    }

    /// Returns all registered reactions.
    pub async fn reactions(&self) -> Result<Vec<Registered>> {
        self.store().registered().await
    }

    /// Returns tasks ordered by reaction and document, after a key.
    pub async fn tasks(&self, query: Query, after: Option<TaskKey>, most: usize) -> Result<Vec<Task>> {
        self.store().list_tasks(query, after, most).await
    }

    /// Returns a task, if it exists.
    pub async fn task(&self, key: TaskKey) -> Result<Option<Task>> {
        Ok(self.store().load_tasks(vec![key]).await?.pop())
    }

    /// Runs tasks again: pending and ended ones now, running ones after their run. With a filter,
    /// only tasks whose documents match it run again. Events that were handled are not handled
    /// again. Returns the number of tasks.
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
                let change = |task: Task| TaskChange::Update(task.version, task.retry(shared.moment()));
                let refused = self.store().save_tasks(tasks.into_iter().map(change).collect()).await?;
                retried += count - refused.len() as u64;
                tasks = self.store().load_tasks(refused).await?;
                tasks.retain(|task| query.is(task) && task.can_run_again());
            }
        }
        if retried > 0 {
            shared.wake().await?;
        }
        Ok(retried)
    }

    /// Returns those tasks whose documents match.
    async fn matching(&self, tasks: Vec<Task>, filter: &Filter) -> Result<Vec<Task>> {
        let places: BTreeMap<_, _> =
            self.reactions().await?.into_iter().filter_map(|one| Some((one.name, one.on?))).collect();
        let mut by_place: BTreeMap<DocumentSource, Vec<Task>> = BTreeMap::new();
        for task in tasks {
            if let Some(on) = places.get(&task.key.reaction) {
                by_place.entry(on.clone()).or_default().push(task);
            }
        }
        let (mut matching, now) = (Vec::new(), self.0.shared.now());
        for (on, tasks) in by_place {
            let mut ids: Vec<_> = tasks.iter().map(|task| task.key.document.clone()).collect();
            let mut meant = BTreeSet::new();
            while !ids.is_empty() {
                let found = self.store().current_documents(&on, ids, BYTES).await?;
                let is_meant = |document: &FoundDocument| {
                    let value = document.body.as_ref().ok().and_then(|body| body.value().ok());
                    value.is_some_and(|value| filter.matches(&value, now))
                };
                meant.extend(found.documents.into_iter().filter(is_meant).map(|document| document.id));
                ids = found.left;
            }
            matching.extend(tasks.into_iter().filter(|task| meant.contains(&task.key.document)));
        }
        Ok(matching)
    }

    /// Stops every process from beginning runs of a reaction until it is [resumed](Self::resume).
    /// Handlers that already run continue.
    pub async fn pause(&self, reaction: &str) -> Result<()> {
        let pause = |registered: &mut Registered| {
            registered.paused = true;
            registered.paused_because = None;
        };
        self.set(reaction, pause).await
    }

    /// Resumes a reaction that was paused or throttled.
    pub async fn resume(&self, reaction: &str) -> Result<()> {
        let run = |registered: &mut Registered| {
            registered.paused = false;
            registered.paused_because = None;
            registered.throttled = None;
        };
        self.set(reaction, run).await?;
        self.0.shared.wake().await
    }

    async fn set(&self, reaction: &str, change: impl Fn(&mut Registered)) -> Result<()> {
        if self.0.shared.change(reaction, change).await? {
            return Ok(());
        }
        Err(Invalid::new("reaction", reaction, "one that is registered").into())
    }

    /// Deletes the tasks of this process's reactions whose retention time has passed. Returns their
    /// number. The planner also does this periodically.
    pub async fn sweep(&self) -> Result<u64> {
        let places: BTreeSet<_> = self.0.shared.definitions.iter().filter_map(|one| one.on.clone()).collect();
        let mut swept = 0;
        for on in places {
            swept += self.0.shared.sweep(&on).await?;
        }
        Ok(swept)
    }

    /// Waits until every change so far is planned, and no task is due or running. That includes
    /// tasks that handlers cause, but not tasks that wait for a retry or a debounce. For tests.
    pub async fn idle(&self) -> Result<()> {
        self.idle_within(Duration::ZERO).await
    }

    /// Like [`idle`](Self::idle), and also waits for tasks that are due within the horizon, such as
    /// retries and debounced tasks.
    pub async fn idle_within(&self, horizon: Duration) -> Result<()> {
        let mut quiet = 0;
        while quiet < 2 {
            // The future is large; boxing it keeps the callers' futures small.
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
        let end = crate::react::define::later(self.store().time().await?, horizon);
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

    /// Fails if a task has failed; the error names some of them. For tests.
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

    /// Stops planning and claiming. Handlers that run have until the deadline; then they are
    /// aborted, and their claims are given back.
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
