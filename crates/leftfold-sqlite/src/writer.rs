//! The writer: one thread with the only connection that writes.
//!
//! A commit costs a sync of the disk, so the work of concurrent callers shares one. Each is still on its own:
//! work that fails or conflicts leaves nothing behind and takes nobody else with it. Nobody is answered before
//! the commit; when the commit itself fails, everybody is told that the outcome is unknown.

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

use crate::contents::Operating;
use crate::error::Failure;
use crate::identity::Identity;
use crate::log;
use crate::react::journal;
use crate::watch::{Board, News};

/// What may wait for the writer before callers do.
const QUEUE: usize = 1_024;
/// What one transaction may take on: so much work, or so many bytes.
const GROUP: usize = 1_024;
const GROUP_BYTES: usize = 8 << 20;
/// The longest that a transaction waits for callers who are on their way.
const GATHER: Duration = Duration::from_micros(400);

/// Something to be done in a transaction that others may share.
pub(crate) trait Work: Send + 'static {
    type Answer: Send + 'static;

    /// What it does to the file, for errors: "append to".
    const DOING: &'static str;

    /// About how many bytes it writes.
    fn bytes(&self) -> usize {
        0
    }

    /// Whether it writes with more than one statement, so that it needs a savepoint to be undone.
    fn has_steps(&self) -> bool;

    /// Does it. What others should learn of it is put into `tx` once nothing can fail any more.
    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure>;

    /// The answer when nothing was written, and when that can't be told.
    fn failed(error: Error) -> Self::Answer;
}

/// How work ended.
pub(crate) enum Ran<A> {
    /// What it wrote, if anything, is to be committed.
    Keep(A),
    /// What it wrote is to be undone.
    Undo(A),
}

/// The transaction that a group shares.
pub(crate) struct Tx<'c> {
    pub(crate) connection: &'c Connection,
    /// The last row of each partition that was looked up or written.
    heads: Vec<Option<i64>>,
    /// The checkpoints that were moved.
    pub(crate) marks: Vec<(Collection, Mark)>,
    /// Documents were written: those who follow them may have to know.
    pub(crate) wrote_documents: bool,
    /// What operations are carried out with.
    pub(crate) operating: &'c Operating,
    /// SQLite's number of the schema, if it matters to those who wait that it is another one.
    pub(crate) schema: Option<i64>,
    /// How often those who run tasks were stirred, if they were.
    pub(crate) stirs: Option<u64>,
    /// What all appends of a group share.
    append: Option<Append<'c>>,
    /// The last failure that others may meet, too.
    trouble: Option<Failure>,
}

/// The statements of an append.
pub(crate) struct Append<'c> {
    pub(crate) revision: CachedStatement<'c>,
    pub(crate) insert: CachedStatement<'c>,
}

impl<'c> Tx<'c> {
    /// The last row of a partition.
    pub(crate) fn head(&self, partition: Partition) -> Result<i64, Failure> {
        match self.heads.get(usize::from(partition.0)).copied().flatten() {
            Some(row) => Ok(row),
            None => log::head(self.connection, partition),
        }
    }

    /// Says which is the last row of a partition now.
    pub(crate) fn grow(&mut self, partition: Partition, row: i64) {
        if let Some(head) = self.heads.get_mut(usize::from(partition.0)) {
            *head = Some(row);
        }
    }

    /// The statements of an append, prepared once for a group.
    pub(crate) fn append(&mut self) -> rusqlite::Result<&mut Append<'c>> {
        Ok(match &mut self.append {
            Some(prepared) => prepared,
            none => none.insert(Append {
                revision: self.connection.prepare_cached(log::REVISION)?,
                insert: self.connection.prepare_cached(log::INSERT)?,
            }),
        })
    }
}

/// Hands work to the thread. When the last one is dropped, the thread finishes what is queued and ends.
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
                // First the file is closed, then it is said.
                drop(state);
                drop(end);
            })
            .map_err(|error| {
                Error::new(Kind::Store, format!("could not start the writing thread of {}", path.display()))
                    .with_source(error)
            })?;
        Ok(Self { jobs: sender, path: path.to_owned(), trouble, ended })
    }

    /// The file, for errors.
    pub(crate) fn place(&self) -> String {
        self.path.display().to_string()
    }

    /// Whether the last write failed for a reason that the next one may meet, too: a full disk, a file that is gone.
    pub(crate) fn is_in_trouble(&self) -> bool {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Whose `changed` fails once the thread has ended and the file is closed.
    pub(crate) fn ended(&self) -> watch::Receiver<()> {
        self.ended.clone()
    }

    /// Has it done. A caller that goes away before the answer does not stop it.
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

/// Work with the caller who waits for it, of any type.
trait Job: Send {
    fn bytes(&self) -> usize;
    fn run(&mut self, tx: &mut Tx<'_>, path: &Path) -> Result<(), Broken>;
    fn fail(&mut self, failure: &Failure, path: &Path);
    fn answer(self: Box<Self>);
}

/// The whole transaction is lost, though only one job failed.
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
            // SQLite gives up the whole transaction by itself on some errors, such as a full disk.
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
            // Nobody may be there any more to hear it.
            let _ = self.reply.send(answer);
        }
    }
}

struct State {
    connection: Connection,
    operating: Operating,
    path: PathBuf,
    identity: Arc<Identity>,
    /// Why the last write failed, if it did and the next one may, too.
    trouble: Arc<Mutex<Option<Failure>>>,
    board: Arc<Board>,
    jobs: mpsc::Receiver<Box<dyn Job>>,
    last_group: usize,
    last_commit: Duration,
}

/// How an attempt at a group ended, if not with a commit.
enum Lost {
    /// So many, from the first on, fail alike.
    All(Failure, usize),
    /// This job broke the transaction for all.
    By(usize),
}

impl State {
    /// Serves jobs until nobody is left who could bring one.
    fn serve(&mut self) {
        while let Some(first) = self.jobs.blocking_recv() {
            self.run(VecDeque::from([first]));
        }
    }

    /// Runs jobs to their end, and those that come meanwhile. A job that breaks the transaction is answered and left
    /// out; those before it, which had gone well, are done again and committed, and then those after it.
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

    /// Runs jobs in one transaction: the first so many, or as many as there are and come in time. Answers with how
    /// many it committed.
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
        // Where it can't be read, those who wait find the commit by looking for it.
        let journal = wrote_documents.then(|| journal::last(connection).ok()).flatten();
        // What is committed to a file that nobody finds any more is lost.
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
            // The next refused write tries again, and closing the file does.
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

/// The next job for a transaction that has `count` of them. Callers who were answered a moment ago tend to come back
/// at once: waiting for as many as there were, for less time than half a commit takes, saves a commit for the rest.
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
mod tests;
