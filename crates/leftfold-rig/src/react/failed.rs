//! Tasks that are given up: which of them may be, and the reasons they show.

use leftfold::react::{Ended, State, Suspicion, Task};

use super::handlers::{GARBLED, POISON, POISON_ATTEMPTS};

/// The start of the error of a task whose document can't be read.
const UNREADABLE: &str = "the document can't be read";
/// The error of a task whose process has died.
const DIED: &str = "the process ended during the run";
/// The number of processes that the deadly document kills before it runs alone.
const FALLS_IN_GROUPS: usize = Suspicion::SUSPECTS.len();

/// Returns whether a task has failed because its document can't be read.
pub(crate) fn is_unreadable(task: &Task) -> bool {
    task.state == State::Failed && task.error.as_ref().is_some_and(|error| error.starts_with(UNREADABLE))
}

/// Returns whether a task may have failed: that of the deadly document, and those of the document
/// that can't be read.
pub(crate) fn may_fail(task: &Task) -> bool {
    let Task { key, .. } = task;
    is_deadly(task) || key.document.as_str() == GARBLED && is_unreadable(task)
}

/// Returns whether a task is that of the deadly document.
pub(super) fn is_deadly(task: &Task) -> bool {
    task.key.reaction == POISON && task.key.document.as_str() == POISON
}

/// Returns whether a claim of the task was lost with its process.
pub(super) fn was_suspect(task: &Task) -> bool {
    task.history.iter().any(|run| run.outcome == Ended::Lost && run.error.as_deref() == Some(DIED))
}

/// Checks that the deadly document was given up because it ran alone. `falls` has the number of
/// handlers that died beside it, for each process it has killed.
pub(super) fn check_deadly(task: &Task, falls: &[u64], wrong: &mut Vec<String>) {
    let Task { state, attempts, suspicion, error, history, .. } = task;
    let is_given_up = *state == State::Failed && *attempts == POISON_ATTEMPTS;
    let is_for_losses =
        error.as_deref() == Some(DIED) && history.iter().all(|run| run.outcome == Ended::Lost);
    if !is_given_up || *suspicion != Suspicion::Alone || !is_for_losses {
        wrong.push(format!(
            "I8: the task of the deadly document was not given up for running alone: {}",
            outline(task)
        ));
    }
    // The rig may have killed its process before it did.
    let unseen = history.len().saturating_sub(falls.len());
    let alone = falls.iter().filter(|beside| **beside == 0).count();
    if alone + unseen < POISON_ATTEMPTS as usize {
        wrong.push(format!(
            "I8: the task of the deadly document was given up although it ran beside other tasks: {falls:?}"
        ));
    }
    if falls.len() > FALLS_IN_GROUPS + POISON_ATTEMPTS as usize {
        wrong.push(format!("I8: the deadly document has killed {} processes", falls.len()));
    }
}

/// Returns a one-line summary of a task.
pub(crate) fn outline(task: &Task) -> String {
    let Task { key, state, attempts, suspicion, .. } = task;
    let error: String = task.error.iter().flat_map(|error| error.chars()).take(200).collect();
    let runs: Vec<_> = task.history.iter().map(|run| run.outcome).collect();
    let reaction = &key.reaction;
    format!(
        "{reaction} for {}: {state:?} after {attempts} attempts, suspicion {suspicion:?}, error {error:?}, \
         runs {runs:?}",
        key.document
    )
}
