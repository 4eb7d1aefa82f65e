//! A store whose calls can be held: a call that has its answer does not return until the test
//! allows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leftfold::react::{DueTasks, ReactionStore, Task, TaskChange, TaskKey, WantedTasks};
use leftfold::{Error, Kind, Log, Memory, Result, delegate};
use tokio::sync::Notify;

#[derive(Clone, Default)]
pub(crate) struct Held {
    pub(crate) memory: Memory,
    pub(crate) holds_loads: Arc<AtomicBool>,
    pub(crate) holds_stirs: Arc<AtomicBool>,
    /// Saves succeed, but their answers are lost.
    pub(crate) loses_answers: Arc<AtomicBool>,
    /// No call gets through, as if the process stood still.
    pub(crate) stands_still: Arc<AtomicBool>,
    /// Notified when a call is held.
    pub(crate) waiting: Arc<Notify>,
    /// Lets a held call continue.
    pub(crate) go_on: Arc<Notify>,
}

impl Held {
    async fn hold(&self, holds: &AtomicBool) {
        if holds.load(Ordering::Relaxed) {
            self.waiting.notify_one();
            self.go_on.notified().await;
        }
    }
}

impl Held {
    async fn pass(&self) {
        while self.stands_still.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Log for Held {
    delegate!(memory: Log);
}

impl ReactionStore for Held {
    type Feed = <Memory as ReactionStore>::Feed;

    delegate!(
        memory: prepare_reactions, time, current_documents, page_of_ids, follow,
        tasks_to_check, list_tasks, task_depths, registered, register, give_lease, living,
        feed_place, put_feed_place, woken
    );

    async fn load_tasks(&self, keys: Vec<TaskKey>) -> Result<Vec<Task>> {
        self.pass().await;
        let tasks = self.memory.load_tasks(keys).await?;
        self.hold(&self.holds_loads).await;
        Ok(tasks)
    }

    async fn save_tasks(&self, changes: Vec<TaskChange>) -> Result<Vec<TaskKey>> {
        self.pass().await;
        let refused = self.memory.save_tasks(changes).await?;
        if self.loses_answers.load(Ordering::Relaxed) {
            self.hold(&self.loses_answers).await;
            return Err(Error::new(Kind::Unknown, "save tasks: the connection was lost"));
        }
        Ok(refused)
    }

    async fn due_tasks(&self, wanted: Vec<WantedTasks>) -> Result<DueTasks> {
        self.pass().await;
        self.memory.due_tasks(wanted).await
    }

    async fn take_lease(&self, name: &str, owner: &str, length: Duration) -> Result<Option<u64>> {
        self.pass().await;
        self.memory.take_lease(name, owner, length).await
    }

    async fn beat(&self, worker: &str, length: Duration) -> Result<()> {
        self.pass().await;
        self.memory.beat(worker, length).await
    }

    async fn wake(&self) -> Result<()> {
        self.hold(&self.holds_stirs).await;
        self.memory.wake().await
    }
}
