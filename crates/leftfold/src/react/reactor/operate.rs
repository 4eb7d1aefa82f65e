//! Operations: an operator runs tasks again, pauses and resumes reactions, deletes old tasks.

use std::collections::{BTreeMap, BTreeSet};

use leftfold_filter::Filter;

use super::PIECE;
use super::handle::ReactorHandle;
use crate::error::{Invalid, Result};
use crate::react::run::BYTES;
use crate::react::store::{DocumentSource, FoundDocument, Query, ReactionStore, Registered, TaskChange};
use crate::react::task::Task;

impl<S: ReactionStore> ReactorHandle<S> {
    /// Runs tasks again: pending and ended ones now, running ones after their run. With a filter,
    /// only tasks whose documents match it run again. Events that were handled are not handled
    /// again. Returns the number of tasks.
    pub async fn retry(&self, query: Query, documents: Option<&Filter>) -> Result<u64> {
        let shared = self.shared();
        if let Some(name) = &query.reaction
            && !self.reactions().await?.iter().any(|one| one.name == *name)
        {
            return Err(Invalid::new("reaction", name, "the name of a registered reaction").into());
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

    /// Returns the tasks whose documents match.
    async fn matching(&self, tasks: Vec<Task>, filter: &Filter) -> Result<Vec<Task>> {
        let places: BTreeMap<_, _> =
            self.reactions().await?.into_iter().filter_map(|one| Some((one.name, one.on?))).collect();
        let mut by_place: BTreeMap<DocumentSource, Vec<Task>> = BTreeMap::new();
        for task in tasks {
            if let Some(on) = places.get(&task.key.reaction) {
                by_place.entry(on.clone()).or_default().push(task);
            }
        }
        let (mut matching, now) = (Vec::new(), self.shared().now());
        for (on, tasks) in by_place {
            let mut ids: Vec<_> = tasks.iter().map(|task| task.key.document.clone()).collect();
            let mut selected = BTreeSet::new();
            while !ids.is_empty() {
                let found = self.store().current_documents(&on, ids, BYTES).await?;
                let is_selected = |document: &FoundDocument| {
                    let value = document.body.as_ref().ok().and_then(|body| body.value().ok());
                    value.is_some_and(|value| filter.matches(&value, now))
                };
                selected.extend(found.documents.into_iter().filter(is_selected).map(|document| document.id));
                ids = found.left;
            }
            matching.extend(tasks.into_iter().filter(|task| selected.contains(&task.key.document)));
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
        self.shared().wake().await
    }

    async fn set(&self, reaction: &str, change: impl Fn(&mut Registered)) -> Result<()> {
        if self.shared().change(reaction, change).await? {
            return Ok(());
        }
        Err(Invalid::new("reaction", reaction, "the name of a registered reaction").into())
    }

    /// Deletes the tasks of this process's reactions whose retention time has passed. Returns their
    /// number. The planner also does this periodically.
    pub async fn sweep(&self) -> Result<u64> {
        let places: BTreeSet<_> = self.shared().definitions.iter().filter_map(|one| one.on.clone()).collect();
        let mut swept = 0;
        for on in places {
            swept += self.shared().sweep(&on).await?;
        }
        Ok(swept)
    }
}
