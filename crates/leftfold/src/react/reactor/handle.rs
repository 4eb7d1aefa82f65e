//! The handle of running reactions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::counts::ReactorCounts;
use super::shared::Shared;
use crate::error::Result;
use crate::react::store::{Depth, DocumentSource, Query, ReactionStore, Registered};
use crate::react::task::{Task, TaskKey};

/// A handle of running reactions. Cloning creates another handle; dropping the last one aborts all
/// work.
pub struct ReactorHandle<S>(Arc<Handle<S>>);

struct Handle<S> {
    shared: Arc<Shared<S>>,
    planners: Mutex<JoinSet<()>>,
    runner: Mutex<Option<JoinHandle<()>>>,
    end: watch::Sender<Option<Instant>>,
}

impl<S> Clone for ReactorHandle<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> Drop for Handle<S> {
    fn drop(&mut self) {
        if let Some(runner) = self.runner.get_mut().take() {
            runner.abort();
        }
    }
}

impl<S: ReactionStore> ReactorHandle<S> {
    pub(super) fn new(
        shared: Arc<Shared<S>>,
        planners: JoinSet<()>,
        runner: Option<JoinHandle<()>>,
        end: watch::Sender<Option<Instant>>,
    ) -> Self {
        let (planners, runner) = (Mutex::new(planners), Mutex::new(runner));
        Self(Arc::new(Handle { shared, planners, runner, end }))
    }

    pub(super) fn shared(&self) -> &Shared<S> {
        &self.0.shared
    }

    pub(super) fn store(&self) -> &S {
        &self.0.shared.store
    }

    /// Returns the counters of this process.
    pub fn counts(&self) -> ReactorCounts {
        self.0.shared.counts()
    }

    /// Returns the lag of each feed of changes that this process follows: the time since which it
    /// has had unplanned changes. The lag is zero if all changes are planned.
    pub fn feed_lags(&self) -> BTreeMap<DocumentSource, Duration> {
        self.0.shared.lags.all()
    }

    /// Returns the number of tasks of all processes, by reaction and state.
    pub async fn depths(&self) -> Result<BTreeMap<String, Depth>> {
        self.store().task_depths().await
    }

    /// Returns all registered reactions.
    pub async fn reactions(&self) -> Result<Vec<Registered>> {
        self.store().registered().await
    }

    /// Returns tasks ordered by reaction and document, after a key.
    pub async fn tasks(&self, query: Query, after: Option<TaskKey>, most: usize) -> Result<Vec<Task>> {
        self.store().list_tasks(query, after, most).await
    }

    /// Returns a task, if it exists.
    pub async fn task(&self, key: TaskKey) -> Result<Option<Task>> {
        Ok(self.store().load_tasks(vec![key]).await?.pop())
    }

    /// Stops planning and claiming. Handlers that run have until the deadline; then they are
    /// aborted, and their claims are given back.
    pub async fn stop(&self, deadline: Duration) {
        let handle = &self.0;
        handle.end.send_replace(Some(Instant::now() + deadline));
        if let Some(runner) = handle.runner.lock().await.take() {
            let _ = runner.await;
        }
        handle.shared.stop();
        let mut planners = handle.planners.lock().await;
        while planners.join_next().await.is_some() {}
    }
}
