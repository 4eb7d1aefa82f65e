//! The writing thread: it runs jobs in groups, each group in one transaction.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::mpsc;

use super::identity::Identity;
use super::job::Job;
use super::work::Tx;
use crate::contents::Operating;
use crate::error::Failure;
use crate::react::feed::journal;
use crate::watch::{Board, News};

/// The limits of one transaction: the number of jobs, and of bytes.
const GROUP: usize = 1_024;
const GROUP_BYTES: usize = 8 << 20;
/// The longest time that a transaction waits for more callers.
const GATHER: Duration = Duration::from_micros(400);

/// The state of the writing thread.
pub(super) struct WriterThread {
    pub(super) connection: Connection,
    pub(super) operating: Operating,
    pub(super) path: PathBuf,
    pub(super) identity: Arc<Identity>,
    /// The failure of the last write, if the next one may meet it, too.
    pub(super) trouble: Arc<Mutex<Option<Failure>>>,
    pub(super) board: Arc<Board>,
    pub(super) jobs: mpsc::Receiver<Box<dyn Job>>,
    /// The number of jobs in the last transaction, and its duration.
    pub(super) last_group: usize,
    pub(super) last_commit: Duration,
}

/// The result of an attempt at a group without a commit.
enum GroupFailure {
    /// This many jobs, from the first on, fail with the same failure.
    All(Failure, usize),
    /// This job broke the transaction for all.
    By(usize),
}

impl WriterThread {
    /// Serves jobs until the last sender is dropped.
    pub(super) fn serve(&mut self) {
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
                Err(GroupFailure::All(failure, count)) => {
                    tracing::warn!(path = %self.path.display(), ?failure, jobs = count, "a group of writes failed");
                    self.note(Some(failure.clone()));
                    for mut job in jobs.drain(..count) {
                        job.fail(&failure, &self.path);
                        job.answer();
                    }
                    only = None;
                }
                Err(GroupFailure::By(at)) => {
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
    fn attempt(
        &mut self,
        jobs: &mut VecDeque<Box<dyn Job>>,
        only: Option<usize>,
    ) -> Result<usize, GroupFailure> {
        self.roll_back();
        point!("begin");
        self.execute("BEGIN IMMEDIATE")
            .map_err(|error| GroupFailure::All(error.into(), only.unwrap_or(jobs.len())))?;
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
            wakes: None,
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
                return Err(GroupFailure::By(at));
            }
            at += 1;
        }
        let Tx { heads, marks, wrote_documents, schema, wakes, trouble, .. } = tx;
        // If the read fails, waiting tasks find the commit by polling.
        let journal = wrote_documents.then(|| journal::last(connection).ok()).flatten();
        // A commit to a file that was replaced or deleted is lost.
        if let Err(failure) = self.identity.check() {
            self.roll_back();
            self.rescue();
            return Err(GroupFailure::All(failure, at));
        }
        point!("commit");
        if let Err(error) = self.execute("COMMIT") {
            self.roll_back();
            return Err(GroupFailure::All(Failure::from(error).unknown(), at));
        }
        point!("committed");
        self.note(trouble);
        self.board.publish(&heads, News { marks, journal, schema, wakes });
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
            tracing::error!(path = %self.path.display(), %error, "could not roll back a transaction");
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
