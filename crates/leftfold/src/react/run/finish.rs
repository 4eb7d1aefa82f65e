//! Finishing: writes the outcomes of runs in batches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::backoff::Backoff;
use crate::error::Result;
use crate::event::DocumentId;
use crate::mutant;
use crate::react::reactor::shared::Shared;
use crate::react::run::loader::BYTES;
use crate::react::store::{DocumentSource, FoundDocument, ReactionStore, TaskChange};
use crate::react::task::{Observation, RunOutcome, State, Task, TaskKey, kept};

/// The number of finished runs that are written at once.
pub(crate) const FINISH: usize = 1_000;

/// A run that has ended.
pub(crate) struct Finished {
    pub(crate) key: TaskKey,
    pub(crate) epoch: u64,
    pub(crate) outcome: RunOutcome,
    /// `true` if the handler was to complete the task itself.
    pub(crate) completes: bool,
    /// `true` if the reaction is about a document, and the handler has not verified that it is what
    /// the task was planned for.
    pub(crate) unseen: bool,
    pub(crate) took: Duration,
}

/// Writes the outcomes of runs in batches.
pub(crate) async fn finish_all<S: ReactionStore>(
    shared: Arc<Shared<S>>,
    mut finished: mpsc::Receiver<Finished>,
) {
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
            // Others take over a claim that ends meanwhile. Then there is nothing left to finish.
            if !left.is_empty() {
                sleep(delays.next().unwrap_or(Duration::from_secs(1))).await;
            }
        }
    }
}

/// Reads the documents that their handlers have not read. A document that still is what its task
/// was planned for needs no other look.
async fn look_at_unseen<S: ReactionStore>(shared: &Shared<S>, batch: &mut [Finished]) {
    let mut by_source: BTreeMap<&DocumentSource, BTreeMap<&DocumentId, Vec<usize>>> = BTreeMap::new();
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
                    // A planner checks them later.
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

/// Returns whether a document is what the task of a run was planned for.
fn is_current<S: ReactionStore>(shared: &Shared<S>, finished: &Finished, document: &FoundDocument) -> bool {
    let definition = shared.runs.iter().find(|one| one.name == finished.key.reaction);
    let task = shared.running.held(&finished.key, finished.epoch);
    let (Some(definition), Some(task)) = (definition, task) else { return false };
    let (seen, _) = definition.look(Some(document), shared.now());
    // A task that was changed meanwhile has new values that this run did not read.
    task.state == State::Running && seen == Observation::Inside(kept(task.watched))
}

/// Finishes runs. Returns those whose tasks were changed by others meanwhile.
async fn finish_some<S: ReactionStore>(
    shared: &Shared<S>,
    batch: Vec<Finished>,
) -> Result<Vec<Finished>, (crate::Error, Vec<Finished>)> {
    let mut changes = Vec::new();
    let mut ours: BTreeMap<TaskKey, (Finished, Task)> = BTreeMap::new();
    let mut unsure = Vec::new();
    for finished in batch {
        match shared.running.held(&finished.key, finished.epoch) {
            // Only the store knows whether the handler's transaction was committed.
            Some(task) if !finished.completes => {
                let seen = task.version;
                match after(shared, &finished, task) {
                    Some(task) => {
                        changes.push(TaskChange::Update(seen, task.clone()));
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
                end_runs(shared, ours);
            }
            Err(error) => {
                mutant!(FinishOnce => { end_runs(shared, ours); return Ok(left) });
                left.extend(ours.into_values().map(|(finished, _)| finished));
                return Err((error, left));
            }
        }
    }
    if left.is_empty() {
        return Ok(left);
    }
    // Others, or the handler, changed these tasks: read them again.
    let keys = left.iter().map(|finished| finished.key.clone()).collect();
    let there = match shared.store.load_tasks(keys).await {
        Ok(there) => there,
        Err(error) => return Err((error, left)),
    };
    let there: BTreeMap<_, _> = there.into_iter().map(|task| (task.key.clone(), task)).collect();
    let mut again = Vec::new();
    for mut finished in left {
        match there.get(&finished.key) {
            Some(task) if is_open(task, &finished) => {
                fail_uncommitted(&mut finished);
                finished.completes = false;
                shared.running.update(task);
                again.push(finished);
            }
            // The handler has finished it, or an unconfirmed write did, or others have taken it
            // over.
            task => over(shared, &finished, task.filter(|task| task.epoch == finished.epoch)),
        }
    }
    Ok(again)
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

/// Ends runs whose tasks are written.
fn end_runs<S: ReactionStore>(shared: &Shared<S>, written: BTreeMap<TaskKey, (Finished, Task)>) {
    for (finished, task) in written.into_values() {
        over(shared, &finished, Some(&task));
    }
}

/// Ends a run. `task` is its task after the write, or `None` if the claim was lost.
fn over<S: ReactionStore>(shared: &Shared<S>, finished: &Finished, task: Option<&Task>) {
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
