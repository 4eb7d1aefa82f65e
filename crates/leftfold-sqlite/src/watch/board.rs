//! The board: the latest known commits, for tasks that wait for newer ones.
//!
//! The writer publishes commits of this process at once. A thread finds commits of other processes
//! by `PRAGMA data_version`, but only while a task waits. It looks a thousand times a second right
//! after a change, and twenty times a second when idle.
//!
//! **No wake-up is lost**: a waiting task first subscribes, then reads the file, and only then
//! sleeps. The thread first reads the version, then the file, so a commit in between shows as
//! another version next time.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use leftfold::{Collection, Error, Kind, Mark, Result};
use rusqlite::Connection;
use tokio::sync::watch;

use crate::connection::Identity;
use crate::connection::{StayOpen, open_to_read};
use crate::error::Failure;
use crate::log;
use crate::react::feed::journal;
use crate::react::wakes;

/// The pause between two looks, as a fraction of the time since the last change.
const QUIET_PART: u32 = 8;
const SHORTEST: Duration = Duration::from_millis(1);
const MAX_WAIT: Duration = Duration::from_millis(50);

/// The known commits. Other processes may be further.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The last position of each partition. Positions only grow.
    pub(crate) heads: Vec<u64>,
    /// The mark of each checkpoint, and the number of observed changes.
    pub(crate) marks: HashMap<Collection, (Mark, u64)>,
    /// The last entry of the journal of changes.
    pub(crate) journal: i64,
    /// SQLite's schema version: it changes with tables or triggers.
    pub(crate) schema: i64,
    /// The number of wake-ups of runners.
    pub(crate) wakes: u64,
    /// The number of times that the writer has published.
    published: u64,
}

/// Possible news, apart from heads.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) marks: Vec<(Collection, Mark)>,
    pub(crate) journal: Option<i64>,
    pub(crate) schema: Option<i64>,
    pub(crate) wakes: Option<u64>,
}

impl Known {
    pub(crate) fn is_beyond(&self, mark: &Mark) -> bool {
        log::are_beyond(&self.heads, mark)
    }

    fn see(&mut self, heads: impl Iterator<Item = u64>, told: News) -> bool {
        let News { marks, journal, schema, wakes } = told;
        let mut news = replace(&mut self.journal, journal);
        news |= replace(&mut self.schema, schema);
        news |= replace(&mut self.wakes, wakes);
        for (known, head) in self.heads.iter_mut().zip(heads) {
            news |= head > *known;
            *known = head.max(*known);
        }
        for (projection, mark) in marks {
            let (known, changes) = self.marks.entry(projection).or_default();
            if *known != mark {
                *known = mark;
                *changes += 1;
                news = true;
            }
        }
        news
    }
}

/// Replaces a value. Returns whether it changed.
fn replace<T: PartialEq>(known: &mut T, told: Option<T>) -> bool {
    let Some(told) = told.filter(|told| told != known) else { return false };
    *known = told;
    true
}

/// The known commits, and the waiting tasks.
pub(crate) struct Board {
    path: PathBuf,
    identity: Arc<Identity>,
    known: watch::Sender<Known>,
    waiting: Mutex<Waiting>,
    bell: Condvar,
}

struct Waiting {
    waiters: usize,
    /// `true` if a task started to wait since the last look.
    stirred: bool,
    thread: Thread,
    /// The thread's handle, until the store is closed.
    stay_open: Option<StayOpen>,
}

/// The state of the watching thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Thread {
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
            Waiting { waiters: 0, stirred: false, thread: Thread::NotStarted, stay_open: Some(stay_open) };
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
                    let message = format!("could not start watching {}", self.path.display());
                    Error::new(Kind::Store, message).with_source(error)
                })?;
            waiting.thread = Thread::Looking;
        }
        waiting.waiters += 1;
        waiting.stirred = true;
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

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the thread: waits until a task waits, looks, pauses.
    fn look(&self) {
        let mut view = None;
        let mut stirred_at = Instant::now();
        loop {
            let mut waiting = self.lock();
            while waiting.waiters == 0 && waiting.thread != Thread::Closed {
                waiting = self.bell.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            if waiting.thread == Thread::Closed {
                return;
            }
            if std::mem::take(&mut waiting.stirred) {
                stirred_at = Instant::now();
            }
            drop(waiting);
            match self.refresh(&mut view) {
                Ok(true) => stirred_at = Instant::now(),
                Ok(false) => {}
                Err(failure) => {
                    // Commits of this process still wake the waiting tasks; the next look tries
                    // again.
                    tracing::warn!(path = %self.path.display(), ?failure, "could not look for commits of others");
                    view = None;
                }
            }
            let pause = (stirred_at.elapsed() / QUIET_PART).clamp(SHORTEST, MAX_WAIT);
            let mut waiting = self.lock();
            let dozes = pause > 4 * SHORTEST;
            if waiting.thread == Thread::Looking && !(dozes && waiting.stirred) {
                waiting.thread = if dozes { Thread::Dozing } else { Thread::Looking };
                waiting = self.bell.wait_timeout(waiting, pause).unwrap_or_else(PoisonError::into_inner).0;
                if waiting.thread == Thread::Dozing {
                    waiting.thread = Thread::Looking;
                }
            }
        }
    }

    /// Reads the file if it has changed. Returns whether it has.
    fn refresh(&self, view: &mut Option<View>) -> Result<bool, Failure> {
        let view = match view {
            Some(view) => view,
            None => view.insert(View::open(self)?),
        };
        let version = view
            .connection
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get::<_, i64>(0))?;
        let published = self.known.borrow().published;
        if view.seen == Some((version, published)) {
            return Ok(false);
        }
        let heads = log::heads(&view.connection, self.partitions())?;
        let news = News {
            marks: crate::documents::all_marks(&view.connection)?,
            journal: Some(journal::last(&view.connection)?),
            schema: Some(journal::schema(&view.connection)?),
            wakes: Some(wakes(&view.connection)?),
        };
        view.seen = Some((version, published));
        self.known.send_if_modified(|known| {
            // The writer may have published newer values meanwhile; then the next look reads again.
            let fresh = known.published == published;
            known.see(heads.into_iter(), if fresh { news } else { News::default() })
        });
        Ok(true)
    }
}

struct View {
    connection: Connection,
    /// The `data_version` and the writer's count at the last read.
    seen: Option<(i64, u64)>,
}

impl View {
    fn open(board: &Board) -> Result<Self, Failure> {
        Ok(Self { connection: open_to_read(&board.path, &board.identity)?, seen: None })
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
    use super::*;

    /// Returns a board whose file can't be read, so that only the writer can publish.
    fn board() -> Arc<Board> {
        let path = Path::new("/proc/none/store.db");
        let (stay_open, _) = std::sync::mpsc::channel();
        Board::new(path, &Arc::new(Identity::of(path)), 2, stay_open)
    }

    #[tokio::test]
    async fn a_commit_of_this_process_is_put_up_without_a_look_at_the_file() {
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
    async fn who_stops_waiting_is_not_counted() {
        let board = board();
        let first = board.wait().unwrap();
        let second = board.wait().unwrap();
        assert_eq!(board.lock().waiters, 2);
        drop((first, second));
        assert_eq!(board.lock().waiters, 0);
        board.close();
    }
}
