//! The planner: observes documents, and changes their tasks.
//!
//! The planner reads the task first and the document afterwards. The store writes the resulting
//! task only if it has not changed since it was read. So several planners may work at the same
//! time, and a planner may stall. The lease of a collection only avoids double work; its number
//! guards the place of the feed.
//!
//! A planner that follows a collection may not know all its reactions, or may have another version
//! of them. For those it marks the task as to be checked, and a process that knows the reaction
//! checks it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::sleep;

use crate::backoff::Backoff;
use crate::error::{Error, Kind, Result};
use crate::event::DocumentId;
use crate::mutant;
use crate::react::reactor::Shared;
use crate::react::run::BYTES;
use crate::react::store::{DocumentSource, FoundDocument, ReactionStore, Registered, TaskChange};
use crate::react::task::{Observation, Task, TaskKey};

impl<S: ReactionStore> Shared<S> {
    /// Plans tasks for documents that may have changed.
    pub(super) async fn plan(&self, on: &DocumentSource, ids: BTreeSet<DocumentId>) -> Result<()> {
        let mut keys = BTreeSet::new();
        for Registered { name, .. } in self.refresh().await?.iter().filter(|one| one.on.as_ref() == Some(on))
        {
            keys.extend(ids.iter().map(|id| TaskKey { reaction: name.clone(), document: id.clone() }));
        }
        self.plan_tasks(on, keys).await
    }

    /// Plans tasks, and retries where other processes changed a task first.
    pub(super) async fn plan_tasks(&self, on: &DocumentSource, mut keys: BTreeSet<TaskKey>) -> Result<()> {
        let backoff = Backoff::default().first(Duration::from_millis(1)).most(Duration::from_millis(200));
        let mut delays = backoff.limit(50).delays(self.env.random());
        let mut is_due = false;
        while !keys.is_empty() {
            let Planned { changes, unread, known } = self.changes(on, &keys).await?;
            let planned = changes.len() as u64;
            is_due |= !changes.is_empty();
            let refused = self.store.save_tasks(changes).await?;
            self.count(|counts| counts.planned += planned - refused.len() as u64);
            let mut again: BTreeSet<_> = refused.into_iter().collect();
            mutant!(PlanOnce => again.clear());
            if planned > 0 {
                let outdated = self.outdated(&keys, &known).await?;
                again.extend(outdated.into_iter().filter(|key| !unread.contains(&key.document)));
            }
            if !again.is_empty() {
                let pause = delays.next().ok_or_else(|| contended(&format!("planning tasks for {on}")))?;
                sleep(pause).await;
            }
            again.extend(keys.into_iter().filter(|key| unread.contains(&key.document)));
            keys = again;
        }
        if is_due {
            self.wake().await?;
        }
        Ok(())
    }

    /// Reads tasks and their documents, and returns the changes of the tasks.
    async fn changes(&self, on: &DocumentSource, keys: &BTreeSet<TaskKey>) -> Result<Planned> {
        let ids: BTreeSet<_> = keys.iter().map(|key| key.document.clone()).collect();
        // This order matters: the document must not be older than the task.
        let tasks = self.store.load_tasks(keys.iter().cloned().collect()).await?;
        let mut tasks: BTreeMap<_, _> = tasks.into_iter().map(|task| (task.key.clone(), task)).collect();
        let found = self.store.current_documents(on, ids.into_iter().collect(), BYTES).await?;
        let unread: BTreeSet<_> = found.left.into_iter().collect();
        let documents: BTreeMap<_, _> =
            found.documents.into_iter().map(|document| (document.id.clone(), document)).collect();
        let known = self.known_reactions(keys);
        let mut changes = Vec::new();
        for key in keys.iter().filter(|key| !unread.contains(&key.document)) {
            let task = tasks.remove(key);
            changes.extend(self.change_of(key, task, documents.get(&key.document)));
        }
        Ok(Planned { changes, unread, known })
    }

    /// Re-reads the registry, and returns the tasks of reactions whose definition became known or
    /// unknown. A process that registered another definition meanwhile may have compared before the
    /// tasks were written. A process that registers from now on compares after that.
    async fn outdated(
        &self,
        keys: &BTreeSet<TaskKey>,
        known: &BTreeMap<String, bool>,
    ) -> Result<Vec<TaskKey>> {
        mutant!(OldPlans => return Ok(Vec::new()));
        self.refresh().await?;
        let now = self.known_reactions(keys);
        let is_outdated = |key: &&TaskKey| now.get(&key.reaction) != known.get(&key.reaction);
        Ok(keys.iter().filter(is_outdated).cloned().collect())
    }

    /// Returns, for each reaction of these tasks, whether this process has its registered
    /// definition.
    fn known_reactions(&self, keys: &BTreeSet<TaskKey>) -> BTreeMap<String, bool> {
        let names: BTreeSet<_> = keys.iter().map(|key| &key.reaction).collect();
        names.into_iter().map(|name| (name.clone(), self.known(name).is_some())).collect()
    }

    /// Returns the change of a task after its document was read, if there is one.
    fn change_of(
        &self,
        key: &TaskKey,
        task: Option<Task>,
        document: Option<&FoundDocument>,
    ) -> Option<TaskChange> {
        let seen = task.as_ref().map(|task| task.version);
        let moment = self.moment();
        let Some(definition) = self.known(&key.reaction) else {
            mutant!(OthersForgotten => return None);
            return Some(TaskChange::write(seen, Task::look_again(task, key, moment)));
        };
        let (observation, check_at) = definition.observe(document, moment.now);
        if let Observation::Unreadable(error) = &observation {
            let TaskKey { reaction, document } = key;
            tracing::warn!(reaction, %document, error, "a document can't be read; its task fails");
        }
        let check_at = check_at.filter(|at| *at > moment.now);
        let after = Task::observe(task, key, observation, check_at, &definition.rules, moment)?;
        Some(TaskChange::write(seen, after))
    }
}

/// The changes of tasks after their documents were read.
struct Planned {
    changes: Vec<TaskChange>,
    /// The documents that were not read because of the byte limit.
    unread: BTreeSet<DocumentId>,
    /// For each reaction, whether this process has its registered definition.
    known: BTreeMap<String, bool>,
}

/// Returns the error for tasks that change faster than they can be planned.
pub(super) fn contended(doing: &str) -> Error {
    let message = format!("{doing}: other processes keep changing them; the planner tries again");
    Error::new(Kind::Unavailable, message)
}
