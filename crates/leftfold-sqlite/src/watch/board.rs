//! The board: the latest known commits, for tasks that wait for newer ones.
//!
//! The writer publishes commits of this process at once. A thread finds commits of other processes,
//! but only while a task waits.
//!
//! **No wake-up is lost**: a waiting task first subscribes, then reads the file, and only then
//! sleeps. The thread first reads the version, then the file, so a commit in between shows as
//! another version next time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use leftfold::{Error, Kind, Result};
use tokio::sync::watch;

use super::known::{Known, News};
use crate::connection::{Identity, StayOpen};
use crate::log;

/// The known commits, and the waiting tasks.
pub(crate) struct Board {
    pub(super) path: PathBuf,
    pub(super) identity: Arc<Identity>,
    pub(super) known: watch::Sender<Known>,
    waiting: Mutex<Waiting>,
    pub(super) bell: Condvar,
}

/// The waiting tasks, and the thread that watches for them.
pub(super) struct Waiting {
    pub(super) waiters: usize,
    /// `true` if a task started to wait since the last look.
    pub(super) has_new: bool,
    pub(super) thread: Thread,
    /// The thread's handle, until the store is closed.
    stay_open: Option<StayOpen>,
}

/// The state of the watching thread.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Thread {
    NotStarted,
    Looking,
    /// The thread is in a pause that a new waiting task should interrupt.
    Dozing,
    Closed,
}

impl Board {
    pub(crate) fn new(
        path: &Path,
        identity: &Arc<Identity>,
        partitions: u16,
        stay_open: StayOpen,
    ) -> Arc<Self> {
        let known = Known { heads: vec![0; usize::from(partitions)], ..Known::default() };
        let waiting =
            Waiting { waiters: 0, has_new: false, thread: Thread::NotStarted, stay_open: Some(stay_open) };
        Arc::new(Self {
            path: path.to_owned(),
            identity: Arc::clone(identity),
            known: watch::Sender::new(known),
            waiting: Mutex::new(waiting),
            bell: Condvar::new(),
        })
    }

    pub(crate) fn partitions(&self) -> usize {
        self.known.borrow().heads.len()
    }

    /// Publishes a commit of this process.
    pub(crate) fn publish(&self, heads: &[Option<i64>], news: News) {
        self.known.send_if_modified(|known| {
            known.published += 1;
            known.see(heads.iter().map(|row| row.map_or(0, log::position_of)), news)
        });
    }

    /// Starts a wait. Until the guard is dropped, the thread looks for commits of other processes.
    pub(crate) fn wait(self: &Arc<Self>) -> Result<(Guard, watch::Receiver<Known>)> {
        let mut waiting = self.lock();
        if waiting.thread == Thread::NotStarted {
            let (board, stay_open) = (Arc::clone(self), waiting.stay_open.clone());
            thread::Builder::new()
                .name("leftfold-sqlite-watch".to_owned())
                .spawn(move || {
                    board.look();
                    drop(stay_open);
                })
                .map_err(|error| {
                    let message = format!(
                        "could not start the thread that watches {}; check the system's limit of threads",
                        self.path.display()
                    );
                    Error::new(Kind::Store, message).with_source(error)
                })?;
            waiting.thread = Thread::Looking;
        }
        waiting.waiters += 1;
        waiting.has_new = true;
        if waiting.thread == Thread::Dozing || waiting.waiters == 1 {
            self.bell.notify_one();
        }
        drop(waiting);
        Ok((Guard(Arc::clone(self)), self.known.subscribe()))
    }

    /// Ends the thread.
    pub(crate) fn close(&self) {
        let mut waiting = self.lock();
        waiting.thread = Thread::Closed;
        waiting.stay_open = None;
        drop(waiting);
        self.bell.notify_one();
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The registration of a waiting task. Dropping it ends the wait.
pub(crate) struct Guard(Arc<Board>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.lock().waiters -= 1;
    }
}

#[cfg(test)]
mod tests {
    use leftfold::{Collection, Mark};

    use super::*;

    /// Returns a board whose file can't be read, so that only the writer can publish.
    fn board() -> Arc<Board> {
        let path = Path::new("/proc/none/store.db");
        let (stay_open, _) = std::sync::mpsc::channel();
        Board::new(path, &Arc::new(Identity::of(path)), 2, stay_open)
    }

    #[tokio::test]
    async fn a_commit_of_this_process_is_published_without_reading_the_file() {
        let board = board();
        let (_guard, mut known) = board.wait().unwrap();
        let beyond = Mark::default();
        assert!(!known.borrow().is_beyond(&beyond));
        board.publish(&[None, Some(1 << 48 | 7)], News::default());
        known.wait_for(|known| known.is_beyond(&beyond)).await.unwrap();
        assert_eq!(known.borrow().heads, [0, 7]);
        board.publish(&[None, Some(1 << 48 | 3)], News::default());
        assert_eq!(known.borrow().heads, [0, 7], "heads never go back");

        let cart = Collection::new("cart").unwrap();
        let mark: Mark = [("0".into(), 3)].into_iter().collect();
        board.publish(&[], News { marks: vec![(cart.clone(), mark.clone())], ..News::default() });
        board.publish(&[], News { marks: vec![(cart.clone(), mark.clone())], ..News::default() });
        assert_eq!(known.borrow().marks[&cart], (mark, 1), "the second time is no change");
        board.close();
    }

    #[tokio::test]
    async fn a_task_that_stops_waiting_is_not_counted() {
        let board = board();
        let first = board.wait().unwrap();
        let second = board.wait().unwrap();
        assert_eq!(board.lock().waiters, 2);
        drop((first, second));
        assert_eq!(board.lock().waiters, 0);
        board.close();
    }
}
