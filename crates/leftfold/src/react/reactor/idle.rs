//! Idle reactors: tests wait until all changes are planned and no task is due.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::sleep;

use super::PIECE;
use super::handle::ReactorHandle;
use crate::error::{Error, Kind, Result};
use crate::react::plan::{is_caught_up, place_name};
use crate::react::store::{Query, ReactionStore, Registered};
use crate::react::task::{State, Task, TaskKey};
use crate::react::time::later;

impl<S: ReactionStore> ReactorHandle<S> {
    /// Waits until every change so far is planned, and no task is due or running. That includes
    /// tasks that handlers cause, but not tasks that wait for a retry or a debounce. For tests.
    pub async fn idle(&self) -> Result<()> {
        self.idle_within(Duration::ZERO).await
    }

    /// Like [`idle`](Self::idle), and also waits for tasks that are due within the horizon, such as
    /// retries and debounced tasks.
    pub async fn idle_within(&self, horizon: Duration) -> Result<()> {
        let mut quiet = 0;
        while quiet < 2 {
            // The future is large; boxing it keeps the callers' futures small.
            if Box::pin(self.is_idle(horizon)).await? {
                quiet += 1;
            } else {
                quiet = 0;
                sleep(Duration::from_millis(5)).await;
            }
        }
        Ok(())
    }

    async fn is_idle(&self, horizon: Duration) -> Result<bool> {
        if self.shared().running.count() > 0 {
            return Ok(false);
        }
        let names: BTreeSet<_> = self.shared().definitions.iter().map(|one| one.name.as_str()).collect();
        let registered = self.reactions().await?.into_iter();
        let ours: Vec<_> = registered.filter(|one| names.contains(one.name.as_str())).collect();
        Ok(self.is_planned(&ours).await? && !self.has_open_tasks(&ours, horizon).await?)
    }

    /// Returns whether every change so far is planned.
    async fn is_planned(&self, ours: &[Registered]) -> Result<bool> {
        if ours.iter().any(|one| one.comparing.is_some()) {
            return Ok(false);
        }
        let places: BTreeSet<_> = ours.iter().filter_map(|one| one.on.clone()).collect();
        for on in places {
            let Some(place) = self.store().feed_place(&place_name(&on)).await? else {
                return Ok(false);
            };
            if self.store().has_changes(vec![on], place).await? {
                return Ok(false);
            }
        }
        for definition in self.shared().definitions.iter().filter(|one| one.events.is_some()) {
            if !is_caught_up(self.store(), definition).await? {
                return Ok(false);
            }
        }
        let names = ours.iter().map(|one| one.name.clone()).collect();
        Ok(self.store().tasks_to_check(names, 1).await?.tasks.is_empty())
    }

    /// Returns whether a task runs, or is due within the horizon.
    async fn has_open_tasks(&self, ours: &[Registered], horizon: Duration) -> Result<bool> {
        let end = later(self.store().time().await?, horizon);
        for Registered { name, paused, .. } in ours {
            let states = vec![State::Pending, State::Running, State::Changed];
            let query = Query { reaction: Some(name.clone()), states, ..Query::default() };
            let is_near = |task: &Task| {
                task.state != State::Pending || (!paused && task.due.is_some_and(|due| due <= end))
            };
            let mut after = None;
            loop {
                let open = self.store().list_tasks(query.clone(), after, PIECE).await?;
                let Some(last) = open.last() else { break };
                after = Some(last.key.clone());
                if open.iter().any(is_near) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Fails if a task has failed; the error names some of them. For tests.
    pub async fn assert_no_failures(&self) -> Result<()> {
        let query = Query { states: vec![State::Failed], ..Query::default() };
        let failed = self.store().list_tasks(query, None, 3).await?;
        if failed.is_empty() {
            return Ok(());
        }
        let shown = |task: &Task| {
            let TaskKey { reaction, document } = &task.key;
            format!("{reaction} for {document}: {}", task.error.as_deref().unwrap_or("unknown error"))
        };
        let shown: Vec<_> = failed.iter().map(shown).collect();
        Err(Error::new(Kind::Store, format!("tasks have failed: {}", shown.join("; "))))
    }
}
