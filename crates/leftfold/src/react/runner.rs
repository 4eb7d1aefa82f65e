//! Running: tasks that are due are claimed, handled and finished, many at a time.
//!
//! A claim is a change of the task that only one can make. Whoever has it runs the handler and finishes the task if the claim still stands; a claim
//! that others have taken over cancels the handler, and what that says is not heard any more.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument as _;

use super::context::Inner;
use super::events;
use super::loader::{BYTES, Loader};
use super::planner::until;
use super::reaction::Definition;
use super::shared::{Hand, Shared};
use super::store::{Change, FoundDocument, On, Reactive, Wanted};
use super::task::{Outcome, Seen, State, Task, TaskKey, kept};
use crate::error::Result;
use crate::event::DocumentId;
use crate::planted::{Bug, planted};
use crate::retry::Backoff;

/// How long to wait before looking again whether something is due, if nobody says so.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// How long to wait for more room where there is little.
const GATHER: Duration = Duration::from_millis(2);
/// How many finished runs are written at once.
const FINISH: usize = 1_000;

/// What is running here.
#[derive(Default)]
pub(super) struct Running {
    runs: Mutex<BTreeMap<TaskKey, Held>>,
    /// Something has ended.
    freed: Notify,
}

struct Held {
    /// The task as it was last written here.
    task: Task,
    cancel: watch::Sender<bool>,
    /// Its handler has ended; that is not written yet.
    ended: bool,
}

impl Running {
    fn runs(&self) -> MutexGuard<'_, BTreeMap<TaskKey, Held>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self) -> usize {
        self.runs().len()
    }

    /// How many handlers run.
    fn active(&self) -> usize {
        self.runs().values().filter(|held| !held.ended).count()
    }

    /// A handler has ended: another one may begin while that is written.
    fn ends(&self, key: &TaskKey, epoch: u64) {
        if let Some(held) = self.runs().get_mut(key).filter(|held| held.task.epoch == epoch) {
            held.ended = true;
        }
        self.freed.notify_one();
    }

    /// The task of this run, as it was last written here. A task that was claimed again meanwhile is another run's.
    fn held(&self, key: &TaskKey, epoch: u64) -> Option<Task> {
        let is_same = |task: &&Task| task.epoch == epoch || planted(Bug::RunsMixedUp);
        self.runs().get(key).map(|held| &held.task).filter(is_same).cloned()
    }

    /// This run was looked at, or written, and its task was that.
    fn update(&self, task: &Task) {
        if let Some(held) = self.runs().get_mut(&task.key).filter(|held| held.task.epoch == task.epoch) {
            held.task = task.clone();
        }
    }

    /// Tells the handler of this run that its claim is lost.
    fn cancel(&self, key: &TaskKey, epoch: u64) {
        if let Some(held) = self.runs().get(key).filter(|held| held.task.epoch == epoch) {
            held.cancel.send_replace(true);
        }
    }

    /// This run has ended.
    fn release(&self, key: &TaskKey, epoch: u64) {
        {
            let mut runs = self.runs();
            if runs.get(key).is_some_and(|held| held.task.epoch == epoch || planted(Bug::RunsMixedUp)) {
                runs.remove(key);
            }
        }
        self.freed.notify_one();
    }
}

/// A run that has ended.
pub(super) struct Finished {
    key: TaskKey,
    epoch: u64,
    outcome: Outcome,
    /// The handler was to complete it itself.
    completes: bool,
    /// It is about a document, and the handler has not found it to be what the task was planned for.
    unseen: bool,
    took: Duration,
}

/// Claims and runs until it is to stop; then waits for what runs until the deadline, and gives back the rest.
pub(super) async fn run<S: Reactive>(shared: Arc<Shared<S>>, mut stop: watch::Receiver<Option<Instant>>) {
    let loader = Loader::on(shared.store.clone());
    let (finish, finished) = mpsc::channel(FINISH);
    // They end with this, however it ends: claims of one that is gone must not be renewed.
    let mut helpers = JoinSet::new();
    helpers.spawn(finish_all(Arc::clone(&shared), finished));
    let renewer = helpers.spawn(renew_all(Arc::clone(&shared)));
    let all = shared.runs.iter().map(|definition| definition.concurrency).fold(0, usize::saturating_add);
    let room = shared.concurrency.min(all);
    let mut handlers = JoinSet::new();
    let mut pauses = shared.pauses();
    let mut stirs = u64::MAX;
    loop {
        while handlers.try_join_next().is_some() {}
        if stop.borrow().is_some() {
            break;
        }
        // Those that are about to end are worth waiting for: what is claimed together costs as much as one.
        if shared.running.active() * 4 > room * 3 {
            sleep(GATHER).await;
        }
        let claimed = claim(&shared).await;
        let wait = match claimed {
            Ok((tasks, next)) => {
                pauses = shared.pauses();
                let is_any = !tasks.is_empty();
                for (definition, task) in tasks {
                    handlers.spawn(handle(
                        Arc::clone(&shared),
                        definition,
                        task,
                        loader.clone(),
                        finish.clone(),
                    ));
                }
                if is_any { Duration::ZERO } else { next.unwrap_or(LOOK_EVERY).min(LOOK_EVERY) }
            }
            Err(error) => {
                shared.failed(&error, "claiming tasks");
                let pause = pauses.next().unwrap_or(LOOK_EVERY);
                let _ = timeout(pause, told(&mut stop)).await;
                continue;
            }
        };
        if wait.is_zero() {
            tokio::task::yield_now().await;
            continue;
        }
        let freed = shared.running.freed.notified();
        tokio::select! { biased;
            () = told(&mut stop) => {}
            () = freed => {}
            stirred = shared.store.stirred(stirs, wait) => match stirred {
                Ok(number) => stirs = number,
                Err(error) => {
                    shared.failed(&error, "waiting for tasks");
                    sleep(Duration::from_millis(500)).await;
                }
            },
        }
    }
    let deadline = stop.borrow().unwrap_or_else(Instant::now);
    let all = async { while handlers.join_next().await.is_some() {} };
    let _ = tokio::time::timeout_at(deadline, all).await;
    handlers.shutdown().await;
    drop(finish);
    renewer.abort();
    while helpers.join_next().await.is_some() {}
    give_back(&shared).await;
}

/// Waits until it is to stop.
async fn told(stop: &mut watch::Receiver<Option<Instant>>) {
    // An error says that whoever could stop it is gone, which is as good.
    let _ = stop.wait_for(Option::is_some).await;
}

/// Claims what is due and has room here. Answers with it, and how long it is until something else is due.
async fn claim<S: Reactive>(shared: &Shared<S>) -> Result<(Vec<(Arc<Definition>, Task)>, Option<Duration>)> {
    let mut wanted = Vec::new();
    {
        let runs = shared.running.runs();
        let mut by_reaction: BTreeMap<&str, usize> = BTreeMap::new();
        let mut active = 0;
        for (key, _) in runs.iter().filter(|(_, held)| !held.ended) {
            active += 1;
            *by_reaction.entry(key.reaction.as_str()).or_default() += 1;
        }
        // What has ended is written while others run, and is bounded, too.
        let in_all = shared.concurrency.saturating_mul(2).saturating_sub(runs.len());
        let mut free = shared.concurrency.saturating_sub(active).min(in_all);
        // Each gets its share, beginning with another one every time.
        let count = shared.runs.len();
        let first = usize::try_from(shared.env.random() % (count.max(1) as u64)).unwrap_or(0);
        for (left, at) in (0..count).map(|at| (count - at, (first + at) % count.max(1))) {
            let definition = &shared.runs[at];
            let running = by_reaction.get(definition.name.as_str()).copied().unwrap_or(0);
            let most = definition.concurrency.saturating_sub(running).min(free.div_ceil(left));
            free -= most;
            if most > 0 {
                let version = if planted(Bug::OldCodeRuns) { u32::MAX } else { definition.rules.version };
                let reaction = definition.name.clone();
                wanted.push(Wanted { reaction, version, most });
            }
        }
    }
    if wanted.is_empty() {
        return Ok((Vec::new(), None));
    }
    let due = shared.store.due_tasks(wanted).await?;
    let mut changes = Vec::new();
    let mut claimed: BTreeMap<TaskKey, Task> = BTreeMap::new();
    for task in due.tasks {
        let Some(definition) = shared.runs.iter().find(|one| one.name == task.key.reaction) else { continue };
        let (seen, was_lost) = (task.version, task.state != State::Pending);
        let moment = super::task::Moment { now: due.now, ..shared.moment() };
        let key = task.key.clone();
        let is_outdated = definition.on.is_some() && due.codes.get(&key.reaction) > Some(&task.needs);
        if let Some(task) = task.claim(&shared.owner, &definition.rules, moment) {
            shared.count(|counts| counts.takeovers += u64::from(was_lost));
            // Old code may have planned it after newer code had compared all: that one has the last word. And of what is given up, nobody has read the
            // document.
            let is_given_up = task.state == State::Failed;
            let task = if is_outdated || is_given_up && definition.on.is_some() {
                Task::look_again(Some(task), &key, moment)
            } else {
                task
            };
            claimed.insert(key, task.clone());
            changes.push(Change::Update(seen, task));
        }
    }
    let next = due.next.map(|next| until(next, due.now));
    if changes.is_empty() {
        return Ok((Vec::new(), next));
    }
    match shared.store.save_tasks(changes).await {
        Ok(refused) => refused.iter().for_each(|key| drop(claimed.remove(key))),
        Err(error) if error.is_transient() => {
            // Some may be ours: those that are as they were to be.
            let keys = claimed.keys().cloned().collect();
            let there = shared.store.load_tasks(keys).await?;
            let there: BTreeMap<_, _> = there.into_iter().map(|task| (task.key.clone(), task)).collect();
            claimed.retain(|key, task| there.get(key).is_some_and(|found| is_written(found, task)));
        }
        Err(error) => return Err(error),
    }
    let given_up = claimed.values().filter(|task| task.state == State::Failed).count() as u64;
    claimed.retain(|_, task| task.state == State::Running);
    shared.count(|counts| {
        counts.claimed += claimed.len() as u64;
        counts.failed += given_up;
    });
    let of = |task: Task| {
        let definition = shared.runs.iter().find(|one| one.name == task.key.reaction)?;
        Some((Arc::clone(definition), task))
    };
    let claimed: Vec<_> = claimed.into_values().filter_map(of).collect();
    let mut runs = shared.running.runs();
    for (_, task) in &claimed {
        runs.insert(
            task.key.clone(),
            Held { task: task.clone(), cancel: watch::Sender::new(false), ended: false },
        );
    }
    Ok((claimed, next))
}

/// Whether a task was written, as its state says, whatever others have made of it since.
fn is_written(found: &Task, task: &Task) -> bool {
    let is_claim = task.state == State::Running;
    found.version == task.version || is_claim && found.is_claimed(task.epoch) && found.owner == task.owner
}

async fn handle<S: Reactive>(
    shared: Arc<Shared<S>>,
    definition: Arc<Definition>,
    task: Task,
    loader: Loader,
    finish: mpsc::Sender<Finished>,
) {
    let (key, epoch) = (task.key.clone(), task.epoch);
    let event = match events::next(&shared.store, &definition, &task).await {
        Ok(event) => event,
        Err(error) => {
            let outcome = Outcome::Failed(error.to_string());
            let (completes, unseen, took) = (false, false, Duration::ZERO);
            let finished = Finished { key, epoch, outcome, completes, unseen, took };
            let _ = finish.send(finished).await;
            return;
        }
    };
    let revision = event.as_ref().map(|event| event.revision.0);
    let cancelled = {
        let runs = shared.running.runs();
        // If it is another one's by now, the claim was lost before it began.
        runs.get(&key).filter(|held| held.task.epoch == epoch).map(|held| held.cancel.subscribe())
    };
    let Some(cancelled) = cancelled else { return };
    let inner = Arc::new(Inner {
        definition: Arc::clone(&definition),
        task,
        loader,
        hands: Arc::new(Hand(Arc::clone(&shared))),
        cancelled: cancelled.clone(),
        owner: shared.owner.clone(),
        stale: AtomicBool::new(false),
        current: AtomicBool::new(false),
        completes: AtomicBool::new(false),
        deferred: Mutex::default(),
        throttles: AtomicBool::new(false),
        event,
    });
    let begun = Instant::now();
    // A handler that panics has failed; so has one that is gone.
    let mut running = JoinSet::new();
    let span = tracing::info_span!(
        "task",
        reaction = key.reaction,
        document = %key.document,
        epoch,
        attempt = inner.task.attempts,
    );
    tracing::debug!(parent: &span, "begun");
    running.spawn(definition.handle(Arc::clone(&inner)).instrument(span.clone()));
    let mut lost = cancelled;
    let said = tokio::select! { biased;
        said = running.join_next() => said,
        () = async { let _ = lost.wait_for(|lost| *lost).await; } => None,
    };
    let Some(said) = said else {
        // It is no longer ours. The handler has been told; it ends here at the latest.
        tracing::warn!(parent: &span, "others have taken it over; its handler is ended");
        shared.running.release(&key, epoch);
        shared.count(|counts| counts.lost += 1);
        return;
    };
    let outcome = match said {
        Ok(_) if inner.stale.load(Ordering::Relaxed) => Outcome::Stale,
        Ok(Ok(())) => inner.takes_deferred().map_or_else(|| done(revision), Outcome::Deferred),
        Ok(Err(error)) => Outcome::Failed(error.to_string()),
        Err(error) if error.is_panic() => Outcome::Failed(panicked(error)),
        Err(error) => Outcome::Failed(format!("the handler was ended: {error}")),
    };
    if inner.throttles.load(Ordering::Relaxed) {
        shared.count(|counts| counts.throttled += 1);
    }
    let took = begun.elapsed();
    match &outcome {
        Outcome::Failed(error) => tracing::warn!(parent: &span, ?took, error, "failed"),
        outcome => tracing::debug!(parent: &span, ?took, ?outcome, "ended"),
    }
    let completes = inner.completes.load(Ordering::Relaxed);
    let unseen = definition.on.is_some() && !inner.current.load(Ordering::Relaxed);
    shared.running.ends(&key, epoch);
    let finished = Finished { key, epoch, outcome, completes, unseen, took };
    // Whoever finishes lives for as long as those who run.
    let _ = finish.send(finished).await;
}

/// What was done: an event of a stream was handled, or the document was.
fn done(revision: Option<u64>) -> Outcome {
    revision.map_or(Outcome::Done, Outcome::Handled)
}

fn panicked(error: tokio::task::JoinError) -> String {
    let panic = error.into_panic();
    let said = panic.downcast_ref::<&str>().map(ToString::to_string);
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    format!("the handler panicked: {said}")
}

/// Writes what became of runs, as many at once as there are.
async fn finish_all<S: Reactive>(shared: Arc<Shared<S>>, mut finished: mpsc::Receiver<Finished>) {
    let mut batch = Vec::new();
    while finished.recv_many(&mut batch, FINISH).await > 0 {
        look_at_unseen(&shared, &mut batch).await;
        let backoff =
            Backoff::default().first(Duration::from_millis(5)).most(Duration::from_secs(1)).without_limit();
        let mut delays = backoff.delays(shared.env.random());
        let mut left = std::mem::take(&mut batch);
        while !left.is_empty() {
            left = match finish_some(&shared, left).await {
                Ok(left) => left,
                Err((error, left)) => {
                    shared.failed(&error, "finishing tasks");
                    left
                }
            };
            // A claim that ends meanwhile is taken over by others, and then there is nothing left to finish.
            if !left.is_empty() {
                sleep(delays.next().unwrap_or(Duration::from_secs(1))).await;
            }
        }
    }
}

/// Looks at documents that their handlers have not looked at. One that still is what its task was planned for need not be looked at again.
async fn look_at_unseen<S: Reactive>(shared: &Shared<S>, batch: &mut [Finished]) {
    let mut by_source: BTreeMap<&On, BTreeMap<&DocumentId, Vec<usize>>> = BTreeMap::new();
    for (at, finished) in batch.iter().enumerate().filter(|(_, finished)| finished.unseen) {
        let definition = shared.runs.iter().find(|one| one.name == finished.key.reaction);
        if let Some(on) = definition.and_then(|one| one.on.as_ref()) {
            by_source.entry(on).or_default().entry(&finished.key.document).or_default().push(at);
        }
    }
    let mut seen = Vec::new();
    for (on, of_documents) in by_source {
        let mut ids: Vec<_> = of_documents.keys().map(|id| (*id).clone()).collect();
        while !ids.is_empty() {
            let found = match shared.store.current_documents(on, ids, BYTES).await {
                Ok(found) => found,
                Err(error) => {
                    // They are looked at later.
                    shared.failed(&error, "looking at documents that were handled");
                    break;
                }
            };
            for document in &found.documents {
                for at in of_documents.get(&document.id).into_iter().flatten() {
                    if is_current(shared, &batch[*at], document) {
                        seen.push(*at);
                    }
                }
            }
            ids = found.left;
        }
    }
    for at in seen {
        batch[at].unseen = false;
    }
}

/// Whether a document is what the task of a run was planned for.
fn is_current<S: Reactive>(shared: &Shared<S>, finished: &Finished, document: &FoundDocument) -> bool {
    let definition = shared.runs.iter().find(|one| one.name == finished.key.reaction);
    let task = shared.running.held(&finished.key, finished.epoch);
    let (Some(definition), Some(task)) = (definition, task) else { return false };
    let (seen, _) = definition.look(Some(document), shared.now());
    // A task that has changed meanwhile is renewed, and was not read for this run.
    task.state == State::Running && seen == Seen::Inside(kept(task.watched))
}

/// Finishes runs. Answers with those whose tasks were changed by others meanwhile.
async fn finish_some<S: Reactive>(
    shared: &Shared<S>,
    batch: Vec<Finished>,
) -> Result<Vec<Finished>, (crate::Error, Vec<Finished>)> {
    let mut changes = Vec::new();
    let mut ours: BTreeMap<TaskKey, (Finished, Task)> = BTreeMap::new();
    let mut unsure = Vec::new();
    for finished in batch {
        match shared.running.held(&finished.key, finished.epoch) {
            // Whether the handler's transaction was committed, only the store knows.
            Some(task) if !finished.completes => {
                let seen = task.version;
                match after(shared, &finished, task) {
                    Some(task) => {
                        changes.push(Change::Update(seen, task.clone()));
                        ours.insert(finished.key.clone(), (finished, task));
                    }
                    None => over(shared, &finished, None),
                }
            }
            Some(_) => unsure.push(finished),
            None => {}
        }
    }
    let mut left = unsure;
    if !changes.is_empty() {
        match shared.store.save_tasks(changes).await {
            Ok(refused) => {
                for key in refused {
                    left.extend(ours.remove(&key).map(|(finished, _)| finished));
                }
                for (finished, task) in ours.into_values() {
                    over(shared, &finished, Some(&task));
                }
            }
            Err(_) if planted(Bug::FinishOnce) => {
                for (finished, task) in ours.into_values() {
                    over(shared, &finished, Some(&task));
                }
            }
            Err(error) => {
                left.extend(ours.into_values().map(|(finished, _)| finished));
                return Err((error, left));
            }
        }
    }
    if left.is_empty() {
        return Ok(left);
    }
    // These were changed by others, or by the handler: look what they are now.
    let keys = left.iter().map(|finished| finished.key.clone()).collect();
    let there = match shared.store.load_tasks(keys).await {
        Ok(there) => there,
        Err(error) => return Err((error, left)),
    };
    let there: BTreeMap<_, _> = there.into_iter().map(|task| (task.key.clone(), task)).collect();
    let mut again = Vec::new();
    for mut finished in left {
        match there.get(&finished.key) {
            Some(task) if task.is_claimed(finished.epoch) || planted(Bug::LostClaimCounts) => {
                let is_uncommitted = finished.completes && !planted(Bug::UnknownIsCompleted);
                if is_uncommitted && matches!(finished.outcome, Outcome::Done | Outcome::Handled(_)) {
                    let error = "the handler completed the task in a transaction that was not committed";
                    finished.outcome = Outcome::Failed(error.to_owned());
                }
                finished.completes = false;
                shared.running.update(task);
                again.push(finished);
            }
            // It was finished before, by the handler or by a write whose answer was lost; or others have taken it over.
            task => over(shared, &finished, task.filter(|task| task.epoch == finished.epoch)),
        }
    }
    Ok(again)
}

fn after<S: Reactive>(shared: &Shared<S>, finished: &Finished, task: Task) -> Option<Task> {
    let definition = shared.runs.iter().find(|one| one.name == finished.key.reaction)?;
    let moment = shared.moment();
    let task = task.finish(finished.epoch, finished.outcome.clone(), &definition.rules, moment)?;
    // What planned it may have come late, when the document had left already. Who reads it sees that; if the handler has not, somebody else must.
    let is_unsure = finished.unseen && matches!(finished.outcome, Outcome::Done | Outcome::Failed(_));
    if is_unsure {
        return Some(Task::look_again(Some(task), &finished.key, moment));
    }
    Some(task)
}

/// A run is over, and its task is this by now, if it still was ours.
fn over<S: Reactive>(shared: &Shared<S>, finished: &Finished, task: Option<&Task>) {
    shared.running.release(&finished.key, finished.epoch);
    shared.count(|counts| {
        counts.handler(finished.took);
        let Some(task) = task else {
            counts.lost += 1;
            return;
        };
        match &finished.outcome {
            // What the handler completed in a transaction is done, also if it did not hear of its commit.
            Outcome::Failed(_) if task.error.is_none() => counts.done += 1,
            Outcome::Done | Outcome::Handled(_) => counts.done += 1,
            Outcome::Stale => counts.stale += 1,
            Outcome::Deferred(_) => counts.deferred += 1,
            Outcome::Failed(_) if task.state == State::Failed => counts.failed += 1,
            Outcome::Failed(_) => counts.retried += 1,
        }
    });
    let looks_again = task.is_some_and(|task| task.check_at.is_some() || task.state == State::Pending);
    if looks_again {
        shared.stir_soon();
    }
}

/// Makes claims longer while their handlers run, and cancels those that are lost.
async fn renew_all<S: Reactive>(shared: Arc<Shared<S>>) {
    let shortest = shared.runs.iter().map(|definition| definition.rules.visibility).min();
    let every = shortest.unwrap_or(LOOK_EVERY) / 3;
    loop {
        sleep(every).await;
        let claims: Vec<_> =
            shared.running.runs().iter().map(|(key, held)| (key.clone(), held.task.epoch)).collect();
        if claims.is_empty() {
            continue;
        }
        if let Err(error) = renew(&shared, claims).await {
            shared.failed(&error, "renewing claims");
        }
    }
}

/// Renews claims as they were before the tasks were read: a run that has begun since then is another one.
async fn renew<S: Reactive>(shared: &Shared<S>, claims: Vec<(TaskKey, u64)>) -> Result<()> {
    let there = shared.store.load_tasks(claims.iter().map(|(key, _)| key.clone()).collect()).await?;
    let mut there: BTreeMap<_, _> = there.into_iter().map(|task| (task.key.clone(), task)).collect();
    let mut changes = Vec::new();
    for (key, epoch) in claims {
        let Some(definition) = shared.runs.iter().find(|one| one.name == key.reaction) else { continue };
        if shared.running.held(&key, epoch).is_none() {
            continue;
        }
        let task = there.remove(&key);
        // One that its handler has completed in a transaction goes on to its end.
        if task.as_ref().is_some_and(|task| task.epoch == epoch && !task.is_claimed(epoch)) {
            continue;
        }
        let renewed = task.and_then(|task| {
            let seen = task.version;
            Some((seen, task.renew_claim(epoch, &definition.rules, shared.moment())?))
        });
        match renewed {
            Some((seen, task)) => changes.push(Change::Update(seen, task)),
            // The handler may just have finished it; then nobody hears this.
            None => shared.running.cancel(&key, epoch),
        }
    }
    let renewed: BTreeMap<_, _> = changes
        .iter()
        .filter_map(|change| match change {
            Change::Update(_, task) => Some((task.key.clone(), task.clone())),
            _ => None,
        })
        .collect();
    let refused = shared.store.save_tasks(changes).await?;
    for (key, task) in renewed {
        // What was changed by others meanwhile is renewed the next time; there is time for that.
        if !refused.contains(&key) {
            shared.running.update(&task);
        }
    }
    Ok(())
}

/// Gives back what did not end in time: others may run it at once.
async fn give_back<S: Reactive>(shared: &Shared<S>) {
    let keys: Vec<_> = std::mem::take(&mut *shared.running.runs())
        .into_iter()
        .map(|(key, held)| (key, held.task.epoch))
        .collect();
    if keys.is_empty() {
        return;
    }
    let give = async {
        let there = shared.store.load_tasks(keys.iter().map(|(key, _)| key.clone()).collect()).await?;
        let epochs: BTreeMap<_, _> = keys.into_iter().collect();
        let back = |task: Task| {
            let (seen, epoch) = (task.version, *epochs.get(&task.key)?);
            Some(Change::Update(seen, task.give_back(epoch, shared.moment())?))
        };
        shared.store.save_tasks(there.into_iter().filter_map(back).collect()).await?;
        shared.stir().await
    };
    if let Err(error) = give.await {
        tracing::warn!(%error, "could not give claims back; they end by themselves");
    }
}
