//! The writer: one thread with the only writing connection.
//!
//! A commit costs a disk sync, so the work of concurrent callers shares one. Each piece of work is
//! still isolated: if it fails or conflicts, it leaves nothing behind and does not affect the
//! others. Callers are answered only after the commit. If the commit itself fails, all callers get
//! an unknown outcome.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use leftfold::{Collection, Error, Kind, Mark, Partition, Result};
use rusqlite::{CachedStatement, Connection};
use tokio::sync::{mpsc, oneshot, watch};

use crate::connection::identity::Identity;
use crate::contents::Operating;
use crate::error::Failure;
use crate::react::feed::journal;
use crate::watch::{Board, News};
use crate::{append, log};

/// The number of jobs that may queue before callers have to wait.
const QUEUE: usize = 1_024;
/// The limits of one transaction: the number of jobs, and of bytes.
const GROUP: usize = 1_024;
const GROUP_BYTES: usize = 8 << 20;
/// The longest time that a transaction waits for more callers.
const GATHER: Duration = Duration::from_micros(400);

/// Work in a transaction that other work may share.
pub(crate) trait Work: Send + 'static {
    type Answer: Send + 'static;

    /// The operation on the file, for errors: "append to".
    const DOING: &'static str;

    /// Returns the approximate number of bytes it writes.
    fn bytes(&self) -> usize {
        0
    }

    /// Returns whether it writes with more than one statement, so that undoing it needs a
    /// savepoint.
    fn has_steps(&self) -> bool;

    /// Does the work. It sets the results for others in `tx` only when nothing can fail any more.
    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure>;

    /// Returns the answer if nothing was written, or if the outcome is unknown.
    fn failed(error: Error) -> Self::Answer;
}

/// The result of work.
pub(crate) enum Ran<A> {
    /// Commit its writes, if any.
    Keep(A),
    /// Undo its writes.
    Undo(A),
}

/// The transaction that a group shares.
pub(crate) struct Tx<'c> {
    pub(crate) connection: &'c Connection,
    /// The last row of each partition that was looked up or written.
    heads: Vec<Option<i64>>,
    /// The moved checkpoints.
    pub(crate) marks: Vec<(Collection, Mark)>,
    /// `true` if documents were written, so that followers may need a wake-up.
    pub(crate) wrote_documents: bool,
    /// The state for carrying out operations.
    pub(crate) operating: &'c Operating,
    /// SQLite's schema version, if waiting tasks need to know a new one.
    pub(crate) schema: Option<i64>,
    /// The number of wake-ups of runners, if it changed.
    pub(crate) stirs: Option<u64>,
    /// The statements shared by all appends of a group.
    append: Option<Append<'c>>,
    /// The last failure that other work may meet, too.
    trouble: Option<Failure>,
}

/// The statements of an append.
pub(crate) struct Append<'c> {
    pub(crate) revision: CachedStatement<'c>,
    pub(crate) insert: CachedStatement<'c>,
}

impl<'c> Tx<'c> {
    /// Returns the last row of a partition.
    pub(crate) fn head(&self, partition: Partition) -> Result<i64, Failure> {
        match self.heads.get(usize::from(partition.0)).copied().flatten() {
            Some(row) => Ok(row),
            None => log::head(self.connection, partition),
        }
    }

    /// Sets the last row of a partition.
    pub(crate) fn grow(&mut self, partition: Partition, row: i64) {
        if let Some(head) = self.heads.get_mut(usize::from(partition.0)) {
            *head = Some(row);
        }
    }

    /// Returns the statements of an append, prepared once per group.
    pub(crate) fn append(&mut self) -> rusqlite::Result<&mut Append<'c>> {
        Ok(match &mut self.append {
            Some(prepared) => prepared,
            none => none.insert(Append {
                revision: self.connection.prepare_cached(log::REVISION)?,
                insert: self.connection.prepare_cached(append::INSERT)?,
            }),
        })
    }
}

/// A handle that sends work to the thread. When the last one is dropped, the thread finishes the
/// queue and ends.
pub(crate) struct Writer {
    jobs: mpsc::Sender<Box<dyn Job>>,
    path: PathBuf,
    trouble: Arc<Mutex<Option<Failure>>>,
    ended: watch::Receiver<()>,
}

impl Writer {
    /// Starts the thread. It closes the file only after all senders of `others` are dropped.
    pub(crate) fn start(
        connection: Connection,
        path: &Path,
        identity: &Arc<Identity>,
        board: Arc<Board>,
        others: Receiver<Infallible>,
    ) -> Result<Self> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let operating = Operating::default();
        operating.install(&connection).map_err(|error| Failure::from(error).to_error("open", path))?;
        let trouble = Arc::<Mutex<_>>::default();
        let mut state = State {
            connection,
            operating,
            path: path.to_owned(),
            identity: Arc::clone(identity),
            trouble: Arc::clone(&trouble),
            board,
            jobs: receiver,
            last_group: 0,
            last_commit: Duration::ZERO,
        };
        let (end, ended) = watch::channel(());
        thread::Builder::new()
            .name("leftfold-sqlite-writer".to_owned())
            .spawn(move || {
                state.serve();
                // SQLite moves the write-ahead log into the file when the last connection closes.
                // Only this one can: the others are read-only.
                while others.recv().is_ok() {}
                // Close the file before announcing it.
                drop(state);
                drop(end);
            })
            .map_err(|error| {
                Error::new(Kind::Store, format!("could not start the writing thread of {}", path.display()))
                    .with_source(error)
            })?;
        Ok(Self { jobs: sender, path: path.to_owned(), trouble, ended })
    }

    /// Returns the path of the file, for errors.
    pub(crate) fn place(&self) -> String {
        self.path.display().to_string()
    }

    /// Returns whether the last write failed for a reason that the next one may meet, too: a full
    /// disk, a missing file.
    pub(crate) fn is_in_trouble(&self) -> bool {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Returns a receiver whose `changed` fails once the thread has ended and the file is closed.
    pub(crate) fn ended(&self) -> watch::Receiver<()> {
        self.ended.clone()
    }

    /// Runs work in the thread. If the caller is cancelled before the answer, the work still runs.
    pub(crate) async fn run<W: Work>(&self, work: W) -> W::Answer {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Pending { work, answer: None, reply });
        let ended = |kind, what: &str| {
            let message =
                format!("could not {} {}: {what}; open the file again", W::DOING, self.path.display());
            W::failed(Error::new(kind, message))
        };
        if self.jobs.send(job).await.is_err() {
            return ended(Kind::Stopped, "the writing thread has ended");
        }
        match answer.await {
            Ok(answer) => answer,
            Err(_) => ended(Kind::Unknown, "the writing thread ended before it answered"),
        }
    }
}

/// Work of any type, with its waiting caller.
trait Job: Send {
    fn bytes(&self) -> usize;
    fn run(&mut self, tx: &mut Tx<'_>, path: &Path) -> Result<(), Broken>;
    fn fail(&mut self, failure: &Failure, path: &Path);
    fn answer(self: Box<Self>);
}

/// The error of a job that broke the whole transaction.
struct Broken;

struct Pending<W: Work> {
    work: W,
    answer: Option<W::Answer>,
    reply: oneshot::Sender<W::Answer>,
}

impl<W: Work> Job for Pending<W> {
    fn bytes(&self) -> usize {
        self.work.bytes()
    }

    fn run(&mut self, tx: &mut Tx<'_>, path: &Path) -> Result<(), Broken> {
        let connection = tx.connection;
        let has_steps = self.work.has_steps();
        let savepoint = |sql| -> Result<(), Failure> {
            // On some errors, such as a full disk, SQLite rolls back the whole transaction by
            // itself.
            if has_steps && !connection.is_autocommit() {
                connection.prepare_cached(sql)?.execute([])?;
            }
            Ok(())
        };
        let ran = savepoint("SAVEPOINT work").and_then(|()| self.work.run(tx));
        let undone = match &ran {
            Ok(Ran::Keep(_)) => Ok(()),
            Ok(Ran::Undo(_)) | Err(_) => savepoint("ROLLBACK TO work"),
        };
        let ended = undone.and_then(|()| savepoint("RELEASE work"));
        let broken = ended.is_err() || connection.is_autocommit();
        match ran.and_then(|ran| ended.map(|()| ran)) {
            Ok(_) if broken => self.fail(&Failure::damaged("the transaction ended by itself"), path),
            Ok(Ran::Keep(answer) | Ran::Undo(answer)) => self.answer = Some(answer),
            Err(failure) => {
                if !matches!(failure.kind(), Kind::Invalid | Kind::Conflict) {
                    tx.trouble = Some(failure.clone());
                }
                self.fail(&failure, path);
            }
        }
        if broken { Err(Broken) } else { Ok(()) }
    }

    fn fail(&mut self, failure: &Failure, path: &Path) {
        self.answer = Some(W::failed(failure.to_error(W::DOING, path)));
    }

    fn answer(self: Box<Self>) {
        if let Some(answer) = self.answer {
            // The caller may have stopped waiting.
            let _ = self.reply.send(answer);
        }
    }
}

struct State {
    connection: Connection,
    operating: Operating,
    path: PathBuf,
    identity: Arc<Identity>,
    /// The failure of the last write, if the next one may meet it, too.
    trouble: Arc<Mutex<Option<Failure>>>,
    board: Arc<Board>,
    jobs: mpsc::Receiver<Box<dyn Job>>,
    last_group: usize,
    last_commit: Duration,
}

/// The result of an attempt at a group without a commit.
enum Lost {
    /// This many jobs, from the first on, fail with the same failure.
    All(Failure, usize),
    /// This job broke the transaction for all.
    By(usize),
}

impl State {
    /// Serves jobs until the last sender is dropped.
    fn serve(&mut self) {
        while let Some(first) = self.jobs.blocking_recv() {
            self.run(VecDeque::from([first]));
        }
    }

    /// Runs jobs to their end, and jobs that arrive meanwhile. A job that breaks the transaction is
    /// answered and left out. The jobs before it, which had succeeded, run again and commit; then
    /// the jobs after it run.
    fn run(&mut self, mut jobs: VecDeque<Box<dyn Job>>) {
        let mut only = None;
        while !jobs.is_empty() {
            let begun = Instant::now();
            match self.attempt(&mut jobs, only) {
                Ok(count) => {
                    self.last_group = count;
                    self.last_commit = begun.elapsed();
                    jobs.drain(..count).for_each(Job::answer);
                    only = None;
                }
                Err(Lost::All(failure, count)) => {
                    tracing::warn!(path = %self.path.display(), ?failure, jobs = count, "a group of writes failed");
                    self.note(Some(failure.clone()));
                    for mut job in jobs.drain(..count) {
                        job.fail(&failure, &self.path);
                        job.answer();
                    }
                    only = None;
                }
                Err(Lost::By(at)) => {
                    if let Some(job) = jobs.remove(at) {
                        job.answer();
                    }
                    only = Some(at).filter(|at| *at > 0);
                }
            }
        }
    }

    /// Runs jobs in one transaction: the first `only`, or all that are queued or arrive in time.
    /// Returns the number of committed jobs.
    fn attempt(&mut self, jobs: &mut VecDeque<Box<dyn Job>>, only: Option<usize>) -> Result<usize, Lost> {
        self.roll_back();
        point!("begin");
        self.execute("BEGIN IMMEDIATE")
            .map_err(|error| Lost::All(error.into(), only.unwrap_or(jobs.len())))?;
        let begun = Instant::now();
        let heads = vec![None; self.board.partitions()];
        let connection = &self.connection;
        let mut tx = Tx {
            connection,
            heads,
            marks: Vec::new(),
            wrote_documents: false,
            operating: &self.operating,
            schema: None,
            stirs: None,
            append: None,
            trouble: None,
        };
        let (mut at, mut bytes) = (0, 0);
        while at < only.unwrap_or(usize::MAX) {
            if at == jobs.len() {
                let next = (only.is_none() && bytes < GROUP_BYTES)
                    .then(|| next(&mut self.jobs, at, self.last_group, begun, self.last_commit));
                let Some(job) = next.flatten() else { break };
                jobs.push_back(job);
            }
            bytes += jobs[at].bytes();
            if jobs[at].run(&mut tx, &self.path).is_err() {
                self.note(tx.trouble);
                self.roll_back();
                return Err(Lost::By(at));
            }
            at += 1;
        }
        let Tx { heads, marks, wrote_documents, schema, stirs, trouble, .. } = tx;
        // If the read fails, waiting tasks find the commit by polling.
        let journal = wrote_documents.then(|| journal::last(connection).ok()).flatten();
        // A commit to a file that was replaced or deleted is lost.
        if let Err(failure) = self.identity.check() {
            self.roll_back();
            self.rescue();
            return Err(Lost::All(failure, at));
        }
        point!("commit");
        if let Err(error) = self.execute("COMMIT") {
            self.roll_back();
            return Err(Lost::All(Failure::from(error).unknown(), at));
        }
        point!("committed");
        self.note(trouble);
        self.board.publish(&heads, News { marks, journal, schema, stirs });
        Ok(at)
    }

    /// Moves the content of a deleted write-ahead log into the file. SQLite still has the log open,
    /// and the end of this process would lose the commits in it.
    fn rescue(&self) {
        if !self.identity.has_lost_log() {
            return;
        }
        let moved = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
            Ok(row.get::<_, i64>(1)? == row.get::<_, i64>(2)?)
        });
        match moved {
            Ok(true) => {}
            // The next refused write tries again, and so does closing the file.
            Ok(false) => tracing::warn!(path = %self.path.display(), "readers delay the checkpoint"),
            Err(error) => tracing::warn!(path = %self.path.display(), %error, "the checkpoint failed"),
        }
    }

    fn note(&self, trouble: Option<Failure>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<usize> {
        self.connection.prepare_cached(sql)?.execute([])
    }

    fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.execute("ROLLBACK")
        {
            tracing::error!(path = %self.path.display(), %error, "a transaction could not be rolled back");
        }
    }
}

/// Returns the next job for a transaction that has `count` of them. Callers that were just answered
/// tend to come back at once. Waiting for as many callers as last time, for less than half a
/// commit's duration, saves a commit.
fn next(
    jobs: &mut mpsc::Receiver<Box<dyn Job>>,
    count: usize,
    last_count: usize,
    begun: Instant,
    last_commit: Duration,
) -> Option<Box<dyn Job>> {
    if count >= GROUP {
        return None;
    }
    loop {
        if let Ok(job) = jobs.try_recv() {
            return Some(job);
        }
        if count >= last_count || begun.elapsed() >= GATHER.min(last_commit / 2) {
            return None;
        }
        thread::yield_now();
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
