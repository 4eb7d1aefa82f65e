//! The reading connections: a few, opened on demand, used on blocking threads.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use leftfold::{Error, Kind, Result};
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::identity::Identity;
use super::open::open_to_read;
use crate::clock::StoreClock;
use crate::error::Failure;

const CONNECTIONS: usize = 4;

/// A handle that keeps the writer from closing its connection. Every owner of read-only connections
/// holds one, and drops it after them. Nothing is ever sent.
pub(crate) type StayOpen = Sender<Infallible>;

/// A pool of read-only connections. Each sees the last commit of any process.
pub(crate) struct Readers {
    path: PathBuf,
    identity: Arc<Identity>,
    clock: Arc<StoreClock>,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
    /// The last field, so that it is dropped after the connections.
    _stay_open: StayOpen,
}

impl Readers {
    pub(crate) fn new(
        path: &Path,
        identity: &Arc<Identity>,
        clock: Arc<StoreClock>,
        stay_open: StayOpen,
    ) -> Arc<Self> {
        let (identity, permits) = (Arc::clone(identity), Arc::new(Semaphore::new(CONNECTIONS)));
        Arc::new(Self {
            path: path.to_owned(),
            identity,
            clock,
            idle: Mutex::default(),
            permits,
            _stay_open: stay_open,
        })
    }

    /// Returns whether all connections are in use.
    pub(crate) fn are_busy(&self) -> bool {
        self.permits.available_permits() == 0
    }

    /// Reads in one snapshot. `doing` names the operation in errors, for example "read the log in".
    pub(crate) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        doing: &'static str,
        read: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T> {
        let stopped = || {
            let message = format!("could not {doing} {}: the process is stopping", self.path.display());
            Error::new(Kind::Stopped, message)
        };
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| stopped())?;
        let readers = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || {
            let result = readers.read_blocking(read);
            drop(permit);
            result.map_err(|failure| failure.to_error(doing, &readers.path))
        });
        done.await.map_err(|error| stopped().with_source(error))?
    }

    fn read_blocking<T>(&self, read: impl FnOnce(&Connection) -> Result<T, Failure>) -> Result<T, Failure> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = if let Some(connection) = idle {
            connection
        } else {
            let connection = open_to_read(&self.path, &self.identity)?;
            self.clock.install(&connection)?;
            connection
        };
        let snapshot = connection.unchecked_transaction()?;
        let result = read(&snapshot);
        // Dropping a read-only transaction ends it.
        drop(snapshot);
        if connection.is_autocommit() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::time::timeout;

    use crate::Sqlite;

    #[tokio::test]
    async fn a_store_is_closed_only_after_its_last_read_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let [file, log] = ["store.db", "store.db-wal"].map(|name| directory.path().join(name));
        let store = Sqlite::open(&file).await.unwrap();
        assert!(log.exists());
        let (running, mut runs) = tokio::sync::mpsc::channel::<()>(1);
        let (end, ended) = mpsc::channel::<()>();
        let reading = store.clone();
        let caller = tokio::spawn(async move {
            let read = move |_: &rusqlite::Connection| {
                running.blocking_send(()).unwrap();
                let _ = ended.recv();
                Ok(())
            };
            reading.inner.readers.read("read", read).await
        });
        runs.recv().await.unwrap();
        // The caller is cancelled and drops its handle; its thread continues to read.
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled());

        let mut closing = tokio::spawn(store.close());
        assert!(timeout(Duration::from_millis(50), &mut closing).await.is_err(), "a read still runs");
        drop(end);
        closing.await.unwrap();
        assert!(!log.exists(), "the writer was not the last to close the file");
    }
}
