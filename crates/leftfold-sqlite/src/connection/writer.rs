//! The writer: one thread with the only writing connection.
//!
//! A commit costs a disk sync, so the work of concurrent callers shares one. Each piece of work is
//! still isolated: if it fails or conflicts, it leaves nothing behind and does not affect the
//! others. Callers are answered only after the commit. If the commit itself fails, all callers get
//! an unknown outcome.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use leftfold::{Error, Kind, Result};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};

use super::identity::Identity;
use super::job::{Job, Pending};
use super::thread::WriterThread;
use super::work::Work;
use crate::contents::Operating;
use crate::error::Failure;
use crate::watch::Board;

/// The number of jobs that may queue before callers have to wait.
pub(super) const QUEUE: usize = 1_024;

/// A handle that sends work to the thread. When the last one is dropped, the thread finishes the
/// queue and ends.
pub(crate) struct Writer {
    pub(super) jobs: mpsc::Sender<Box<dyn Job>>,
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
        let mut state = WriterThread {
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
                Error::new(
                    Kind::Store,
                    format!(
                        "could not start the thread that writes {}; check the system's limit of threads",
                        path.display()
                    ),
                )
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
