//! Comparisons: all documents of a reaction are compared with its tasks.

use super::PIECE;
use super::follow::place_name;
use super::lease::LEASE;
use super::planner::contended;
use crate::error::Result;
use crate::event::DocumentId;
use crate::mutant;
use crate::react::define::{Definition, Every};
use crate::react::reactor::Shared;
use crate::react::store::{Comparing, Query, ReactionStore, Registered, TaskChange};
use crate::react::task::{Task, TaskKey};

/// The document id of tasks that have no document.
const TIMED: &str = "time";

impl<S: ReactionStore> Shared<S> {
    /// Compares some documents with their tasks, if that is requested and no other process does it.
    /// Returns whether there is more to compare.
    pub(super) async fn compare(&self, registered: Vec<Registered>) -> Result<bool> {
        let mut is_more = false;
        for registered in registered {
            let Some(definition) = self.known(&registered.name) else { continue };
            let Some(comparing) = &registered.comparing else { continue };
            let lease = format!("comparison for {}", definition.name);
            // The feed must be followed already, or changes from now on would be missed.
            let is_followed = match &definition.on {
                Some(on) => self.store.feed_place(&place_name(on)).await?.is_some(),
                None => true,
            };
            if !is_followed || self.store.take_lease(&lease, &self.owner, LEASE).await?.is_none() {
                continue;
            }
            if *comparing == Comparing::ToBegin {
                tracing::info!(reaction = definition.name, "comparing all documents");
            }
            let next = self.compare_piece(&definition, comparing).await?;
            is_more |= next.is_some();
            let mut after = registered.clone();
            after.version = self.env.random() >> 1;
            after.comparing = next;
            // If the registration was changed meanwhile, the same documents are compared once more.
            if self.store.register(Some(registered.version), after.clone()).await?
                && after.comparing.is_none()
            {
                tracing::info!(reaction = definition.name, "all documents were compared");
                self.store.give_lease(&lease, &self.owner).await?;
            }
        }
        Ok(is_more)
    }

    /// Compares one batch. Returns where to continue, if there is more.
    async fn compare_piece(
        &self,
        definition: &Definition,
        comparing: &Comparing,
    ) -> Result<Option<Comparing>> {
        if let Some(every) = &definition.rules.every {
            return self.compare_times(definition, every).await;
        }
        let Some(on) = &definition.on else { return self.compare_tasks(definition, None).await };
        let key =
            |document: &DocumentId| TaskKey { reaction: definition.name.clone(), document: document.clone() };
        let after = match comparing {
            Comparing::ToBegin => None,
            Comparing::Documents(after) => Some(after.clone()),
            Comparing::Tasks(after) => {
                return self.compare_tasks(definition, Some(key(after))).await;
            }
        };
        let ids = self.store.page_of_ids(on, after, PIECE).await?;
        self.plan_tasks(on, ids.iter().map(key).collect()).await?;
        if let Some(last) = ids.last()
            && ids.len() == PIECE
        {
            return Ok(Some(Comparing::Documents(last.clone())));
        }
        mutant!(CompareDocumentsOnly => return Ok(None));
        self.compare_tasks(definition, None).await
    }

    /// Schedules the task of a recurring reaction. Returns where to continue, if it
    /// must be repeated.
    async fn compare_times(&self, definition: &Definition, every: &Every) -> Result<Option<Comparing>> {
        let key = TaskKey { reaction: definition.name.clone(), document: DocumentId::new(TIMED)? };
        let task = self.store.load_tasks(vec![key.clone()]).await?.pop();
        let seen = task.as_ref().map(|task| task.version);
        let Some(after) = Task::schedule(task, &key, every, &definition.rules, self.moment()) else {
            return Ok(None);
        };
        let refused = self.store.save_tasks(vec![TaskChange::write(seen, after)]).await?;
        self.wake().await?;
        Ok(if refused.is_empty() { None } else { Some(Comparing::ToBegin) })
    }

    /// Checks the documents of tasks, because some may have been deleted. Also runs tasks again if
    /// new code asks for that.
    async fn compare_tasks(
        &self,
        definition: &Definition,
        after: Option<TaskKey>,
    ) -> Result<Option<Comparing>> {
        let query = Query { reaction: Some(definition.name.clone()), ..Query::default() };
        let tasks = self.store.list_tasks(query, after, PIECE).await?;
        let is_last = tasks.len() < PIECE;
        let last = tasks.last().map(|task| task.key.document.clone());
        let keys: Vec<_> = tasks.into_iter().map(|task| task.key).collect();
        if let Some(on) = &definition.on {
            self.plan_tasks(on, keys.iter().cloned().collect()).await?;
        }
        let moment = || self.moment();
        let evolved = |task: Task| {
            let seen = task.version;
            let task = task.evolve(&definition.rules, definition.evolution, moment())?;
            Some(TaskChange::Update(seen, task))
        };
        let changes: Vec<_> = self.store.load_tasks(keys).await?.into_iter().filter_map(evolved).collect();
        if !changes.is_empty() {
            // Tasks that were changed meanwhile are handled again, because the error below repeats
            // the batch.
            let refused = self.store.save_tasks(changes).await?;
            self.wake().await?;
            if !refused.is_empty() {
                return Err(contended(&format!("comparing tasks of {}", definition.name)));
            }
        }
        Ok(last.filter(|_| !is_last).map(Comparing::Tasks))
    }
}
