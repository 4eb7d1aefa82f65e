//! Leftfold's log and documents in a MongoDB database.
//!
//! The log needs a replica set (one member is enough), because it is written in transactions.
//! Documents also work on a standalone server: each document has its own guard.
//!
//! ```no_run
//! use leftfold::Leftfold;
//! use leftfold_mongodb::Mongo;
//!
//! # async fn connect() -> leftfold::Result<()> {
//! let store = Mongo::connect("mongodb://localhost/shop").await?;
//! let app = Leftfold::on(store);
//! # Ok(())
//! # }
//! ```
//!
//! Any program can read the stored documents. Each collection is a view with the collection's name.
//! The view shows the fields of a body at the top level and the document's mark under `_fold`:
//!
//! ```text
//! shop> db.cart_details.find({ status: "Confirmed" })
//! [ { _id: 'cart-42', client: 'ann', status: 'Confirmed', _fold: { mark: '{"0":17}' } } ]
//! ```
//!
//! The records behind the view `cart_details` are in `leftfold.docs.cart_details`. Create indexes
//! for your queries there. Deleted documents leave their marks there too.

#[macro_use]
mod points;

mod append;
mod body;
mod bulk;
mod commit;
mod contents;
mod counters;
mod doctor;
mod documents;
mod error;
mod generations;
mod indexes;
mod lease;
mod log;
mod react;
mod record;
mod schema;
mod sequence;
mod settle;
mod transaction;
mod watch;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::oid::ObjectId;
use leftfold::log::MAX_EVENT_BYTES;
use leftfold::store::clock::Steady;
use leftfold::{Backoff, Env as _, Partition, Result, System};
use mongodb::{Client, Database};
use tokio::time::{Instant, sleep};

use crate::append::Appenders;
use crate::error::Failure;
use crate::watch::Board;

pub use crate::react::{InTransaction, MongoFeed, is_repeatable};

/// A MongoDB database that holds the log and the documents. Cloning gives another handle to the
/// same store.
#[derive(Clone)]
pub struct Mongo {
    inner: Arc<Inner>,
}

struct Inner {
    base: Arc<Base>,
    max_event_bytes: usize,
    appenders: Appenders,
}

/// The connection, and the properties of the server.
pub(crate) struct Base {
    client: Client,
    db: Database,
    /// The name under which the server knows this process.
    app: String,
    /// The database and the servers, for error messages: without user and password.
    place: String,
    way: Way,
    /// The number of partitions of the log. `None` if the server can't hold a log.
    partitions: Option<u16>,
    board: Arc<Board>,
    /// One lock per partition. Writers of one process take turns, because they would only conflict
    /// with each other. The partition's head orders writers of different processes.
    turns: Vec<tokio::sync::Mutex<()>>,
    /// The election id of the last primary known to show every write acknowledged before it.
    caught_up: Mutex<Option<ObjectId>>,
    /// The store's time as this process knows it.
    steady: Mutex<Steady>,
    /// The latest time that other processes have reported, in microseconds.
    time_kept: Mutex<Option<i64>>,
    /// The origin of the elapsed time that `steady` measures.
    begun: Instant,
}

/// The network path to the servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// `true` if all servers are on this machine.
    is_local: bool,
    is_encrypted: bool,
}

impl Mongo {
    /// Connects to the database that the URL names, or `leftfold` if it names none. Creates missing
    /// collections and indexes.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::options().connect(url).await
    }

    /// Returns the default connection options.
    pub fn options() -> Options {
        Options { partitions: None, max_event_bytes: MAX_EVENT_BYTES, existing: false, untouched: false }
    }

    /// Returns the database, for queries of your own.
    pub fn database(&self) -> &Database {
        &self.inner.base.db
    }
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
        patiently(work).await.map_err(|failure| failure.to_error(doing, &self.place))
    }
}

/// Runs an operation with a timeout: a server that hangs with open connections never answers.
pub(crate) async fn patiently<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| Err(Failure::silent()))
}

const PATIENCE: Duration = Duration::from_secs(15);
/// The time within which connecting is retried after transient failures.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Returns a batch size that fits the whole result, so that the server need not keep a cursor open.
pub(crate) fn batch(count: usize) -> u32 {
    u32::try_from(count.saturating_add(1)).map_or(MAX_BATCH, |count| count.min(MAX_BATCH))
}

const MAX_BATCH: u32 = 1_000_000;

/// The largest number of ids in one query: a query is a BSON document, with the size limit of one.
pub(crate) const MAX_IDS: usize = 20_000;

impl fmt::Debug for Mongo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mongo").field("place", &self.inner.base.place).finish_non_exhaustive()
    }
}

/// The options of a connection.
#[derive(Clone, Debug)]
#[must_use = "options do nothing until a connection is made with them"]
pub struct Options {
    partitions: Option<u16>,
    max_event_bytes: usize,
    existing: bool,
    untouched: bool,
}

impl Options {
    /// Sets the number of partitions of the log, from 1 to 1,024. It is fixed when the log is
    /// created; the default is 1. With more partitions, more processes append at the same time and
    /// more workers share a projection.
    pub fn partitions(mut self, partitions: u16) -> Self {
        self.partitions = Some(partitions);
        self
    }

    /// Sets the size limit of an event's data, and of its metadata: 1 MiB by default, at most 7
    /// MiB.
    pub fn max_event_bytes(mut self, bytes: usize) -> Self {
        self.max_event_bytes = bytes;
        self
    }

    /// Connects only to an existing log and creates none: for programs that inspect a log written
    /// by others.
    pub fn existing(mut self) -> Self {
        self.existing = true;
        self
    }

    /// Connects only to an existing log, or to a server that can't hold one, and creates nothing:
    /// for the [doctor](leftfold::Leftfold::doctor), which reports missing collections and indexes.
    pub fn untouched(mut self) -> Self {
        (self.existing, self.untouched) = (true, true);
        self
    }

    /// Connects to the database that the URL names, or `leftfold` if it names none. Creates missing
    /// collections and indexes.
    pub async fn connect(self, url: impl AsRef<str>) -> Result<Mongo> {
        let begun = Instant::now();
        let backoff = Backoff::default().first(Duration::from_millis(50)).most(Duration::from_secs(1));
        let mut delays = backoff.without_limit().delays(System.random());
        let base = loop {
            match schema::connect(url.as_ref(), &self).await {
                // For example an election. The driver has already waited this long for a server it
                // can't reach.
                Err(error) if error.is_transient() && begun.elapsed() < CONNECT_WITHIN => {
                    sleep(delays.next().unwrap_or_default()).await;
                }
                connected => break Arc::new(connected?),
            }
        };
        let appenders = Appenders::new(base.partitions.unwrap_or(0));
        Ok(Mongo { inner: Arc::new(Inner { base, max_event_bytes: self.max_event_bytes, appenders }) })
    }
}
