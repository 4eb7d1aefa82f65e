//! The thread that looks for commits of other processes, by `PRAGMA data_version`.
//!
//! It looks a thousand times a second right after a change, and twenty times a second when idle.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::board::{Board, Thread};
use super::known::News;
use crate::connection::open_to_read;
use crate::documents::all_marks;
use crate::error::Failure;
use crate::log;
use crate::react::feed::journal;
use crate::react::wakes;

/// The pause between two looks, as a fraction of the time since the last change.
const QUIET_PART: u32 = 8;
const MIN_WAIT: Duration = Duration::from_millis(1);
const MAX_WAIT: Duration = Duration::from_millis(50);

impl Board {
    /// Runs the thread: waits until a task waits, looks, pauses.
    pub(super) fn look(&self) {
        let mut view = None;
        let mut changed_at = Instant::now();
        loop {
            let mut waiting = self.lock();
            while waiting.waiters == 0 && waiting.thread != Thread::Closed {
                waiting = self.bell.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            if waiting.thread == Thread::Closed {
                return;
            }
            if std::mem::take(&mut waiting.has_new) {
                changed_at = Instant::now();
            }
            drop(waiting);
            match self.refresh(&mut view) {
                Ok(true) => changed_at = Instant::now(),
                Ok(false) => {}
                Err(failure) => {
                    // Commits of this process still wake the waiting tasks; the next look tries
                    // again.
                    tracing::warn!(path = %self.path.display(), ?failure, "could not look for commits of other processes");
                    view = None;
                }
            }
            let pause = (changed_at.elapsed() / QUIET_PART).clamp(MIN_WAIT, MAX_WAIT);
            let mut waiting = self.lock();
            let dozes = pause > 4 * MIN_WAIT;
            if waiting.thread == Thread::Looking && !(dozes && waiting.has_new) {
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
            marks: all_marks(&view.connection)?,
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
