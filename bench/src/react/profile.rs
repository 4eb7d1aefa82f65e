//! Shows where the time of reactions goes: into which store calls, and on which processor.
//!
//! The planner, the claimer and the finisher are one loop each, which waits for one call at a time.
//! So the share of the run that a loop spends in its calls shows how close it is to its limit.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Write as _, stdout};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table};
use leftfold::react::{
    DocumentFeed, DocumentSource, DueTasks, FeedItem, FoundDocuments, ReactionStore, Registered, State, Task,
    TaskChange, TaskKey, WantedTasks,
};
use leftfold::{DocumentId, Log, delegate};
use serde::Serialize;
use tokio::task;

use super::{DOCUMENTS, ExternalDocuments, Run};
use crate::report::{Result, float, number};
use crate::subject::mongodb::Databases;
use crate::subject::sqlite::Files;

/// The calls of one kind.
#[derive(Clone, Copy, Default)]
struct Calls {
    count: u64,
    items: u64,
    took: Duration,
}

/// The calls so far, by purpose.
#[derive(Default)]
struct Times {
    calls: BTreeMap<&'static str, Calls>,
    /// The task of the planner, which also reads documents and writes tasks.
    planner: Option<task::Id>,
}

/// A store that measures the calls made for reactions.
#[derive(Clone)]
struct Timed<S> {
    store: S,
    times: Arc<Mutex<Times>>,
}

/// A feed that measures how long its caller waits for changes.
struct TimedFeed<F> {
    feed: F,
    times: Arc<Mutex<Times>>,
}

/// Adds a call that began at this time.
fn add(times: &Mutex<Times>, step: &'static str, items: usize, begun: Instant) {
    let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
    let calls = times.calls.entry(step).or_default();
    calls.count += 1;
    calls.items += items as u64;
    calls.took += begun.elapsed();
}

impl<S> Timed<S> {
    fn on(store: S) -> Self {
        Self { store, times: Arc::default() }
    }

    fn is_planner(&self) -> bool {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.planner.is_some() && times.planner == task::try_id()
    }

    async fn time<T>(&self, step: &'static str, items: usize, call: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        let answer = call.await;
        add(&self.times, step, items, begun);
        answer
    }
}

impl<F: DocumentFeed> DocumentFeed for TimedFeed<F> {
    async fn next(&mut self, most: usize, patience: Duration) -> leftfold::Result<FeedItem> {
        let begun = Instant::now();
        let told = self.feed.next(most, patience).await?;
        let count = match &told {
            FeedItem::Changes(changes) => changes.documents.values().map(BTreeSet::len).sum(),
            FeedItem::Lost(_) => 0,
        };
        if count > 0 {
            add(&self.times, "plan: wait for changes", count, begun);
        }
        Ok(told)
    }
}

impl<S: Log> Log for Timed<S> {
    delegate!(store: Log);
}

impl<S: ReactionStore> ReactionStore for Timed<S> {
    type Feed = TimedFeed<S::Feed>;

    delegate!(
        store: prepare_reactions, time, page_of_ids, has_changes, list_tasks, task_depths,
        register, take_lease, give_lease, beat, living, feed_place, woken
    );

    async fn current_documents(
        &self,
        on: &DocumentSource,
        ids: Vec<DocumentId>,
        bytes: usize,
    ) -> leftfold::Result<FoundDocuments> {
        let step = if self.is_planner() { "plan: read documents" } else { "handle: read documents" };
        self.time(step, ids.len(), self.store.current_documents(on, ids, bytes)).await
    }

    async fn follow(&self, on: Vec<DocumentSource>, from: Option<String>) -> leftfold::Result<Self::Feed> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).planner = task::try_id();
        let feed = self.store.follow(on, from).await?;
        Ok(TimedFeed { feed, times: Arc::clone(&self.times) })
    }

    async fn load_tasks(&self, keys: Vec<TaskKey>) -> leftfold::Result<Vec<Task>> {
        let step = if self.is_planner() { "plan: read tasks" } else { "renew: read tasks" };
        self.time(step, keys.len(), self.store.load_tasks(keys)).await
    }

    async fn save_tasks(&self, changes: Vec<TaskChange>) -> leftfold::Result<Vec<TaskKey>> {
        let is_claim = |change: &TaskChange| matches!(change, TaskChange::Update(_, task) if task.state == State::Running);
        let step = match () {
            () if self.is_planner() => "plan: write tasks",
            () if changes.iter().any(is_claim) => "claim: write tasks",
            () => "finish: write tasks",
        };
        self.time(step, changes.len(), self.store.save_tasks(changes)).await
    }

    async fn due_tasks(&self, wanted: Vec<WantedTasks>) -> leftfold::Result<DueTasks> {
        let begun = Instant::now();
        let due = self.store.due_tasks(wanted).await?;
        let step = if due.tasks.is_empty() { "claim: find none" } else { "claim: find due tasks" };
        add(&self.times, step, due.tasks.len(), begun);
        Ok(due)
    }

    async fn tasks_to_check(&self, reactions: Vec<String>, most: usize) -> leftfold::Result<DueTasks> {
        self.time("plan: find tasks to check", 0, self.store.tasks_to_check(reactions, most)).await
    }

    async fn registered(&self) -> leftfold::Result<Vec<Registered>> {
        let step = if self.is_planner() { "plan: read the registry" } else { "check: read the registry" };
        self.time(step, 1, self.store.registered()).await
    }

    async fn put_feed_place(&self, name: &str, lease: u64, place: Option<String>) -> leftfold::Result<bool> {
        self.time("plan: note the place", 1, self.store.put_feed_place(name, lease, place)).await
    }

    async fn wake(&self) -> leftfold::Result<()> {
        let step = if self.is_planner() { "plan: wake the claimer" } else { "finish: wake the planner" };
        self.time(step, 1, self.store.wake()).await
    }
}

/// One kind of call, or one processor, and its share of a run.
#[derive(Serialize)]
struct Line {
    step: String,
    calls: Option<u64>,
    items_per_call: Option<f64>,
    seconds: f64,
    /// The share of the run's duration.
    share: f64,
}

/// A store whose server reports its processor time.
pub(crate) trait Computing: ExternalDocuments {
    /// Returns the server's processor time so far, or `None` if it is part of this process.
    async fn server_time(&self) -> Result<Option<Duration>>;
}

impl Computing for Files {
    async fn server_time(&self) -> Result<Option<Duration>> {
        Ok(None)
    }
}

impl Computing for Databases {
    async fn server_time(&self) -> Result<Option<Duration>> {
        let command = bson::doc! { "serverStatus": 1 };
        let status = self.client().database("admin").run_command(command).await?;
        let extra = status.get_document("extra_info")?;
        let micros = extra.get_i64("user_time_us")? + extra.get_i64("system_time_us")?;
        Ok(Some(Duration::from_micros(micros.unsigned_abs())))
    }
}

/// Profiles one run and prints the result.
pub(crate) async fn run<S: Computing>(subject: &S, json: bool) -> Result<()> {
    let place = "profile";
    subject.remove(place).await?;
    let store = Timed::on(subject.open(place).await?);
    let times = Arc::clone(&store.times);
    eprintln!("reactions, {DOCUMENTS} documents, profiled …");
    let run = Run::start(subject, place, store).await?;
    times.lock().unwrap_or_else(PoisonError::into_inner).calls.clear();
    let (ours, server) = (own_time()?, subject.server_time().await?);
    let took = run.handle_all(subject, place).await?;
    let (ours, server) = (own_time()?.saturating_sub(ours), subject.server_time().await?.zip(server));
    let calls = times.lock().unwrap_or_else(PoisonError::into_inner).calls.clone();
    run.stop().await;
    subject.remove(place).await?;

    let share = |time: Duration| time.as_secs_f64() / took.as_secs_f64();
    let mut lines: Vec<_> = calls
        .into_iter()
        .map(|(step, calls)| Line {
            step: step.to_owned(),
            calls: Some(calls.count),
            items_per_call: Some(float(calls.items) / float(calls.count)),
            seconds: calls.took.as_secs_f64(),
            share: share(calls.took),
        })
        .collect();
    let mut add = |step: &str, time: Duration| {
        let (step, seconds, share) = (step.to_owned(), time.as_secs_f64(), share(time));
        lines.push(Line { step, calls: None, items_per_call: None, seconds, share });
    };
    add("processor: this process", ours);
    if let Some((after, before)) = server {
        add("processor: the server", after.saturating_sub(before));
    }
    add("the whole run", took);
    print(&lines, float(DOCUMENTS) / took.as_secs_f64(), json)
}

/// Returns the processor time of this process so far, to ten milliseconds.
fn own_time() -> Result<Duration> {
    /// The unit that Linux reports to all processes: hundredths of a second.
    const TICK: Duration = Duration::from_millis(10);
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The process name ends with the last bracket. The 12th and 13th fields after it are the ticks
    // in user and in system mode.
    let (_, fields) = stat.rsplit_once(')').ok_or("/proc/self/stat has no name")?;
    let ticks: Result<Vec<u32>, _> = fields.split_whitespace().skip(11).take(2).map(str::parse).collect();
    Ok(TICK * ticks?.into_iter().sum::<u32>())
}

fn print(lines: &[Line], per_second: f64, json: bool) -> Result<()> {
    if json {
        writeln!(stdout(), "{}", serde_json::to_string_pretty(lines)?)?;
        return Ok(());
    }
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(["step", "calls", "items per call", "s", "of the run"]);
    for line in lines {
        table.add_row([
            line.step.clone(),
            line.calls.map(|calls| number(float(calls))).unwrap_or_default(),
            line.items_per_call.map(number).unwrap_or_default(),
            format!("{:.2}", line.seconds),
            format!("{:.0} %", line.share * 100.0),
        ]);
    }
    for column in 1..5 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    writeln!(stdout(), "{table}\n{} tasks per second", number(per_second))?;
    Ok(())
}
