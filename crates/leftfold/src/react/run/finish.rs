//! Finishing: writes the outcomes of runs in batches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;

use super::confirm::confirm_documents;
use crate::backoff::Backoff;
use crate::error::Error;
use crate::mutant;
use crate::react::reactor::Shared;
use crate::react::store::{ReactionStore, TaskChange};
use crate::react::task::{RunOutcome, State, Task, TaskKey};

/// The number of finished runs that are written at once.
pub(super) const FINISH: usize = 1_000;

/// A run that has ended.
pub(super) struct Finished {
    pub(super) key: TaskKey,
    pub(super) epoch: u64,
    pub(super) outcome: RunOutcome,
    /// `true` if the handler was to complete the task itself.
    pub(super) completes: bool,
    /// `true` if the reaction is about a document, and the handler has not verified that it is what
    /// the task was planned for.
    pub(super) unseen: bool,
    pub(super) took: Duration,
}

/// An error, and the runs that are not finished yet.
type Unfinished = (Error, Vec<Finished>);

/// Writes the outcomes of runs in batches.
pub(super) async fn finish_all<S: ReactionStore>(
    shared: Arc<Shared<S>>,
    mut finished: mpsc::Receiver<Finished>,
) {
    let mut batch = Vec::new();
    while finished.recv_many(&mut batch, FINISH).await > 0 {
        confirm_documents(&shared, &mut batch).await;
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
            // Another worker takes over a claim that ends meanwhile. Then there is nothing left to
            // finish.
            if !left.is_empty() {
                sleep(delays.next().unwrap_or(Duration::from_secs(1))).await;
            }
        }
    }
}

/// Finishes runs. Returns those whose tasks were changed meanwhile.
async fn finish_some<S: ReactionStore>(
    shared: &Shared<S>,
    batch: Vec<Finished>,
) -> Result<Vec<Finished>, Unfinished> {
    let mut changes = Vec::new();
    let mut written: BTreeMap<TaskKey, (Finished, Task)> = BTreeMap::new();
    let mut left = Vec::new();
    for finished in batch {
        match shared.running.held(&finished.key, finished.epoch) {
            // Only the store knows whether the handler's transaction was committed.
            Some(_) if finished.completes => left.push(finished),
            Some(task) => {
                let seen = task.version;
                match after(shared, &finished, task) {
                    Some(task) => {
                        changes.push(TaskChange::Update(seen, task.clone()));
                        written.insert(finished.key.clone(), (finished, task));
                    }
                    None => end_run(shared, &finished, None),
                }
            }
            None => {}
        }
    }
    if !changes.is_empty() {
        match shared.store.save_tasks(changes).await {
            Ok(refused) => {
                left.extend(refused.iter().filter_map(|key| Some(written.remove(key)?.0)));
                end_runs(shared, written);
            }
            Err(error) => {
                mutant!(FinishOnce => { end_runs(shared, written); return Ok(left) });
                left.extend(written.into_values().map(|(finished, _)| finished));
                return Err((error, left));
            }
        }
    }
    if left.is_empty() { Ok(left) } else { reload(shared, left).await }
}

/// Returns the task after a run.
fn after<S: ReactionStore>(shared: &Shared<S>, finished: &Finished, task: Task) -> Option<Task> {
    let definition = shared.runs.iter().find(|one| one.name == finished.key.reaction)?;
    let moment = shared.moment();
    let task = task.finish(finished.epoch, finished.outcome.clone(), &definition.rules, moment)?;
    // The plan may have been late: the document may have stopped matching before. A handler that
    // reads the document notices that; otherwise a planner must check.
    let is_unsure = finished.unseen && matches!(finished.outcome, RunOutcome::Done | RunOutcome::Failed(_));
    if is_unsure {
        return Some(Task::look_again(Some(task), &finished.key, moment));
    }
    Some(task)
}

/// Reads tasks again that were changed during their runs. Returns the runs that are still to be
/// finished, and ends the others.
async fn reload<S: ReactionStore>(
    shared: &Shared<S>,
    left: Vec<Finished>,
) -> Result<Vec<Finished>, Unfinished> {
    let keys = left.iter().map(|finished| finished.key.clone()).collect();
    let stored = match shared.store.load_tasks(keys).await {
        Ok(stored) => stored,
        Err(error) => return Err((error, left)),
    };
    let stored: BTreeMap<_, _> = stored.into_iter().map(|task| (task.key.clone(), task)).collect();
    let mut open = Vec::new();
    for mut finished in left {
        match stored.get(&finished.key) {
            Some(task) if is_open(task, &finished) => {
                fail_uncommitted(&mut finished);
                finished.completes = false;
                shared.running.update(task);
                open.push(finished);
            }
            // The handler has finished it, or an unconfirmed write did, or another worker has taken
            // it over.
            task => end_run(shared, &finished, task.filter(|task| task.epoch == finished.epoch)),
        }
    }
    Ok(open)
}

/// Returns whether the outcome of a run is still to be written.
fn is_open(task: &Task, finished: &Finished) -> bool {
    mutant!(LostClaimCounts => return true);
    task.is_claimed(finished.epoch)
}

/// Makes a run fail whose handler was to complete the task, but did not commit its transaction.
fn fail_uncommitted(finished: &mut Finished) {
    mutant!(UnknownIsCompleted => return);
    if finished.completes && matches!(finished.outcome, RunOutcome::Done | RunOutcome::Handled(_)) {
        let error = "the handler completed the task in a transaction that was not committed";
        finished.outcome = RunOutcome::Failed(error.to_owned());
    }
}

/// Ends runs whose tasks are written.
fn end_runs<S: ReactionStore>(shared: &Shared<S>, written: BTreeMap<TaskKey, (Finished, Task)>) {
    for (finished, task) in written.into_values() {
        end_run(shared, &finished, Some(&task));
    }
}

/// Ends a run. `task` is its task after the write, or `None` if the claim was lost.
fn end_run<S: ReactionStore>(shared: &Shared<S>, finished: &Finished, task: Option<&Task>) {
    match task {
        Some(_) => shared.running.release(&finished.key, finished.epoch),
        None => shared.running.lose(&finished.key, finished.epoch),
    }
    shared.count(|counts| {
        counts.handler(finished.took);
        let Some(task) = task else {
            counts.lost += 1;
            return;
        };
        match &finished.outcome {
            // A task that its handler completed in a transaction is done, even if the handler got
            // no confirmation of the commit.
            RunOutcome::Failed(_) if task.error.is_none() => counts.done += 1,
            RunOutcome::Done | RunOutcome::Handled(_) => counts.done += 1,
            RunOutcome::Stale => counts.stale += 1,
            RunOutcome::Deferred(_) => counts.deferred += 1,
            RunOutcome::Failed(_) if task.state == State::Failed => counts.failed += 1,
            RunOutcome::Failed(_) => counts.retried += 1,
        }
    });
    let looks_again = task.is_some_and(|task| task.check_at.is_some() || task.state == State::Pending);
    if looks_again {
        shared.wake_soon();
    }
}
