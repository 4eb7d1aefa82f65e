//! The board: the latest known commits, for tasks that wait for newer ones.
//!
//! Commits of this process are published at once. Commits of other processes arrive through a
//! [watcher](super::watcher), which runs only while a task waits, and for a moment after.
//!
//! **No wake-up is lost**: the watcher opens a change stream before it reads. Whatever the read
//! misses comes through the stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leftfold::{Collection, Mark};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::known::{Known, Scope};
use super::watcher::watch_others;
use crate::connection::Base;

/// The number of its own moves that a process recognizes in the change stream.
const ECHOES: usize = 64;

/// The known commits, and the waiting tasks.
pub(crate) struct Board {
    pub(super) known: watch::Sender<Known>,
    waiting: Mutex<Waiting>,
    /// Rings when a task starts to wait.
    pub(super) bell: Notify,
}

/// The waiting tasks, and the task that watches for them.
#[derive(Default)]
struct Waiting {
    for_wakes: usize,
    for_all: usize,
    /// The task that watches for commits of other processes.
    watcher: Option<AbortHandle>,
}

impl Board {
    pub(crate) fn new(partitions: u16) -> Self {
        let known = Known { partitions, ..Known::default() };
        Self { known: watch::Sender::new(known), waiting: Mutex::default(), bell: Notify::new() }
    }

    /// Publishes a lower bound of the heads. Returns whether it is news.
    pub(crate) fn grew(&self, heads: &Mark) -> bool {
        self.known.send_if_modified(|known| {
            let news = !known.heads.covers(heads);
            known.heads.merge(heads);
            news
        })
    }

    /// Publishes a lower bound of the number of wake-ups. Returns whether it is news.
    pub(crate) fn is_woken(&self, wakes: u64) -> bool {
        self.known.send_if_modified(|known| {
            let news = known.wakes < wakes;
            known.wakes = known.wakes.max(wakes);
            news
        })
    }

    /// Publishes that the live generations may have changed.
    pub(crate) fn switched(&self) {
        self.known.send_modify(|known| known.switches += 1);
    }

    /// Publishes the live generations that were read. Returns whether they are news.
    pub(super) fn found_live(&self, live: Vec<(String, i64)>) -> bool {
        self.known.send_if_modified(|known| {
            let news = known.live != live;
            if news {
                known.live = live;
                known.switches += 1;
            }
            news
        })
    }

    /// Publishes a checkpoint that this process has moved.
    pub(crate) fn moved(&self, projection: &Collection, mark: &Mark) {
        self.known.send_modify(|known| {
            let checkpoint = known.checkpoints.entry(projection.clone()).or_default();
            checkpoint.mark = mark.clone();
            checkpoint.published += 1;
            checkpoint.changes += 1;
            checkpoint.echoes.push_back(mark.clone());
            if checkpoint.echoes.len() > ECHOES {
                checkpoint.echoes.pop_front();
            }
        });
    }

    /// Publishes a checkpoint move from the change stream, unless this process made it.
    pub(super) fn moved_elsewhere(&self, projection: &Collection, mark: &Mark) {
        self.known.send_if_modified(|known| {
            let checkpoint = known.checkpoints.entry(projection.clone()).or_default();
            if let Some(at) = checkpoint.echoes.iter().position(|echo| echo == mark) {
                checkpoint.echoes.drain(..=at);
                return false;
            }
            checkpoint.mark = mark.clone();
            checkpoint.changes += 1;
            true
        });
    }

    /// Returns the number of times that this process has published each checkpoint.
    pub(super) fn published(&self) -> HashMap<Collection, u64> {
        let known = self.known.borrow();
        known
            .checkpoints
            .iter()
            .map(|(projection, checkpoint)| (projection.clone(), checkpoint.published))
            .collect()
    }

    /// Publishes checkpoints that were read, except those that this process has moved meanwhile.
    /// Returns whether there is news.
    pub(super) fn found_checkpoints(
        &self,
        checkpoints: Vec<(Collection, Mark)>,
        published: &HashMap<Collection, u64>,
    ) -> bool {
        self.known.send_if_modified(|known| {
            let mut news = false;
            for (projection, mark) in checkpoints {
                let before = published.get(&projection).copied().unwrap_or(0);
                let checkpoint = known.checkpoints.entry(projection).or_default();
                if checkpoint.published == before && checkpoint.mark != mark {
                    checkpoint.mark = mark;
                    checkpoint.changes += 1;
                    news = true;
                }
            }
            news
        })
    }

    /// Sets the scope that the change stream covers.
    pub(super) fn set_streamed(&self, streamed: Option<Scope>) {
        self.known.send_if_modified(|known| {
            known.streamed = streamed;
            false
        });
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the widest scope that tasks wait for, if any.
    pub(super) fn awaited(&self) -> Option<Scope> {
        let waiting = self.lock();
        match (waiting.for_wakes, waiting.for_all) {
            (0, 0) => None,
            (_, 0) => Some(Scope::Wakes),
            _ => Some(Scope::All),
        }
    }

    /// Waits until a task waits for a wider scope.
    pub(super) async fn wanted_beyond(&self, scope: Scope) {
        while self.awaited() <= Some(scope) {
            self.bell.notified().await;
        }
    }
}

impl Waiting {
    fn waiters(&mut self, scope: Scope) -> &mut usize {
        match scope {
            Scope::Wakes => &mut self.for_wakes,
            Scope::All => &mut self.for_all,
        }
    }
}

/// The registration of a waiting task. Dropping it ends the wait.
pub(crate) struct Guard {
    board: Arc<Board>,
    scope: Scope,
}

impl Drop for Guard {
    fn drop(&mut self) {
        *self.board.lock().waiters(self.scope) -= 1;
    }
}

impl Base {
    /// Starts a wait. Until the guard is dropped, the watcher follows other processes.
    pub(crate) fn wait(self: &Arc<Self>, scope: Scope) -> (Guard, watch::Receiver<Known>) {
        let mut waiting = self.board.lock();
        *waiting.waiters(scope) += 1;
        // The watcher may have ended with the runtime that started it.
        if waiting.watcher.as_ref().is_none_or(AbortHandle::is_finished) {
            let watcher = tokio::spawn(watch_others(Arc::downgrade(self), Arc::clone(&self.board)));
            waiting.watcher = Some(watcher.abort_handle());
        }
        drop(waiting);
        self.board.bell.notify_one();
        (Guard { board: Arc::clone(&self.board), scope }, self.board.known.subscribe())
    }
}
