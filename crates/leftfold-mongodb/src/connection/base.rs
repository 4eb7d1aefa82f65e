//! The connection, and the properties of the server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::oid::ObjectId;
use leftfold::{Error, Kind, Partition, Result};
use mongodb::{Client, Database};

use crate::Mongo;
use crate::clock::StoreClock;
use crate::error::Failure;
use crate::watch::Board;

/// The longest wait for a server that does not answer.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The connection, and the properties of the server.
pub(crate) struct Base {
    pub(crate) client: Client,
    pub(crate) db: Database,
    /// The name under which the server knows this process.
    pub(super) app: String,
    /// The database and the servers, for error messages: without user and password.
    pub(crate) place: String,
    pub(crate) network: Network,
    /// The number of partitions of the log. `None` if the server can't hold a log.
    pub(crate) partitions: Option<u16>,
    pub(crate) board: Arc<Board>,
    /// One lock per partition. Writers of one process take turns, because they would only conflict
    /// with each other. The partition's head orders writers of different processes.
    pub(super) turns: Vec<tokio::sync::Mutex<()>>,
    /// The election id of the last primary known to show every write acknowledged before it.
    pub(super) caught_up: Mutex<Option<ObjectId>>,
    pub(crate) clock: StoreClock,
}

/// The network path to the servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    /// `true` if all servers are on this machine.
    pub(crate) is_local: bool,
    pub(crate) is_encrypted: bool,
}

impl Base {
    /// Returns whether the server has transactions, so that a commit is atomic.
    pub(crate) fn has_transactions(&self) -> bool {
        self.partitions.is_some()
    }

    /// Waits until no other task of this process writes to the partition.
    pub(crate) async fn turn(&self, partition: Partition) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        match self.turns.get(usize::from(partition.0)) {
            Some(turn) => Some(turn.lock().await),
            None => None,
        }
    }

    /// Runs an operation with a timeout. The error names the operation and the database.
    pub(crate) async fn run<T>(
        &self,
        doing: &str,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T> {
        with_timeout(work).await.map_err(|failure| failure.to_error(doing, &self.place))
    }
}

/// Runs an operation with a timeout: a server that hangs with open connections never answers.
pub(crate) async fn with_timeout<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(TIMEOUT, work).await.unwrap_or_else(|_| Err(Failure::silent()))
}

impl Mongo {
    /// Returns the database if it can hold a log.
    pub(crate) fn logged(&self) -> Result<&Arc<Base>> {
        let base = &self.inner.base;
        if base.has_transactions() {
            return Ok(base);
        }
        Err(no_transactions(&base.place))
    }
}

/// Creates the error for a server that can't hold a log because it has no transactions.
pub(crate) fn no_transactions(place: &str) -> Error {
    let message = format!(
        "could not use a log in {place}: a log is written in transactions, and this server is not a replica set; start it \
         with --replSet and run rs.initiate(), one member is enough, or store only documents here"
    );
    Error::new(Kind::Store, message)
}
