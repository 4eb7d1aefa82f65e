//! Confirmation: documents that handlers did not read are read before their runs are finished.

use std::collections::BTreeMap;

use super::finish::Finished;
use super::loader::BYTES;
use crate::event::DocumentId;
use crate::react::reactor::Shared;
use crate::react::store::{DocumentSource, FoundDocument, ReactionStore};
use crate::react::task::{Observation, State, kept};

/// Reads the documents that their handlers have not read. If a document still is what its task was
/// planned for, no planner needs to observe it.
pub(super) async fn confirm_documents<S: ReactionStore>(shared: &Shared<S>, batch: &mut [Finished]) {
    let mut by_source: BTreeMap<&DocumentSource, BTreeMap<&DocumentId, Vec<usize>>> = BTreeMap::new();
    for (at, finished) in batch.iter().enumerate().filter(|(_, finished)| finished.unseen) {
        let definition = shared.runs.iter().find(|one| one.name == finished.key.reaction);
        if let Some(on) = definition.and_then(|one| one.on.as_ref()) {
            by_source.entry(on).or_default().entry(&finished.key.document).or_default().push(at);
        }
    }
    let mut confirmed: Vec<usize> = Vec::new();
    for (on, by_document) in by_source {
        let mut ids: Vec<_> = by_document.keys().map(|id| (*id).clone()).collect();
        while !ids.is_empty() {
            let found = match shared.store.current_documents(on, ids, BYTES).await {
                Ok(found) => found,
                Err(error) => {
                    // A planner observes them later.
                    shared.failed(&error, "reading documents after their runs");
                    break;
                }
            };
            for document in &found.documents {
                let of_document = by_document.get(&document.id).into_iter().flatten();
                confirmed.extend(of_document.filter(|at| is_current(shared, &batch[**at], document)));
            }
            ids = found.left;
        }
    }
    for at in confirmed {
        batch[at].unseen = false;
    }
}

/// Returns whether a document is what the task of a run was planned for.
fn is_current<S: ReactionStore>(shared: &Shared<S>, finished: &Finished, document: &FoundDocument) -> bool {
    let definition = shared.runs.iter().find(|one| one.name == finished.key.reaction);
    let task = shared.running.held(&finished.key, finished.epoch);
    let (Some(definition), Some(task)) = (definition, task) else { return false };
    let (seen, _) = definition.observe(Some(document), shared.now());
    // A task that was changed meanwhile has new values that this run did not read.
    task.state == State::Running && seen == Observation::Inside(kept(task.watched))
}
