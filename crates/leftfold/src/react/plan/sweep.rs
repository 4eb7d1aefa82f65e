//! Sweeps: tasks are deleted when their retention time has passed.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::PIECE;
use crate::error::Result;
use crate::event::DocumentId;
use crate::react::define::Cleanup;
use crate::react::reactor::Shared;
use crate::react::run::BYTES;
use crate::react::store::{DocumentSource, Query, ReactionStore, TaskChange};
use crate::react::task::{State, Task};

/// The default interval between sweeps for tasks to delete.
pub(crate) const SWEEP_EVERY: Duration = Duration::from_mins(1);

impl<S: ReactionStore> Shared<S> {
    /// Deletes tasks whose retention time has passed.
    pub(crate) async fn sweep(&self, on: &DocumentSource) -> Result<u64> {
        let mut swept = 0;
        for definition in self.current().into_iter().filter(|definition| definition.on.as_ref() == Some(on)) {
            let keep_for = match definition.cleanup {
                Cleanup::Keep => continue,
                Cleanup::Gone(keep_for) | Cleanup::GoneOrOutside(keep_for) => keep_for,
            };
            let now = self.store.time().await?;
            let before = now.checked_sub(SignedDuration::try_from(keep_for).unwrap_or_default());
            let query = Query {
                reaction: Some(definition.name.clone()),
                states: vec![State::Done, State::Stale, State::Failed],
                changed_before: Some(before.unwrap_or(Timestamp::MIN)),
                ..Query::default()
            };
            let mut after = None;
            loop {
                let tasks = self.store.list_tasks(query.clone(), after, PIECE).await?;
                let Some(last) = tasks.last() else { break };
                after = Some(last.key.clone());
                let outside: Vec<_> = tasks.into_iter().filter(|task| !task.inside).collect();
                let ids = outside.iter().map(|task| task.key.document.clone()).collect();
                let existing = self.existing(on, ids).await?;
                let is_over = |task: &Task| {
                    let is_gone = !existing.contains(&task.key.document);
                    // A document that can't be read may match. Its task tells why it is not
                    // handled.
                    let is_outside = task.check_at.is_none() && !task.is_unreadable();
                    is_gone || is_outside && matches!(definition.cleanup, Cleanup::GoneOrOutside(_))
                };
                let over: Vec<_> = outside
                    .into_iter()
                    .filter(is_over)
                    .map(|task| TaskChange::Delete(task.version, task.key))
                    .collect();
                let count = over.len() as u64;
                // Tasks that were changed meanwhile wait for the next sweep.
                swept += count - self.store.save_tasks(over).await?.len() as u64;
            }
        }
        self.count(|counts| counts.swept += swept);
        Ok(swept)
    }

    /// Returns the ids of the documents that exist.
    async fn existing(&self, on: &DocumentSource, mut ids: Vec<DocumentId>) -> Result<BTreeSet<DocumentId>> {
        let mut existing = BTreeSet::new();
        while !ids.is_empty() {
            let found = self.store.current_documents(on, ids, BYTES).await?;
            existing.extend(found.documents.into_iter().map(|document| document.id));
            ids = found.left;
        }
        Ok(existing)
    }
}
