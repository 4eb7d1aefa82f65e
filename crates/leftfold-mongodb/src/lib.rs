//! Leftfold's log and documents in a MongoDB database.
//!
//! The log needs a replica set (one member will do), since it is written in transactions. Documents are also kept on a
//! standalone server: each is guarded by itself.
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
//! What is stored is there for any program to read. Each collection is a view with the collection's name, in which a
//! body's fields stand at the top level and `_fold` says what the document has folded:
//!
//! ```text
//! shop> db.cart_details.find({ status: "Confirmed" })
//! [ { _id: 'cart-42', client: 'ann', status: 'Confirmed', _fold: { mark: '{"0":17}' } } ]
//! ```
//!
//! Behind the view `cart_details` are the records, in `leftfold.docs.cart_details`: there is where indexes for your
//! queries go, and where deleted documents leave their marks.

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
pub mod value;
mod watch;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::oid::ObjectId;
use leftfold::log::MAX_EVENT_BYTES;
use leftfold::steady::Steady;
use leftfold::{Backoff, Env as _, Partition, Result, System};
use mongodb::{Client, Database};
use tokio::time::{Instant, sleep};

use crate::append::Appenders;
use crate::error::Failure;
use crate::watch::Board;

pub use crate::react::{InTransaction, MongoFeed, is_repeatable};

/// A MongoDB database that holds the log and the documents. Cloning gives another handle to the same store.
#[derive(Clone)]
pub struct Mongo {
    inner: Arc<Inner>,
}

struct Inner {
    base: Arc<Base>,
    max_event_bytes: usize,
    appenders: Appenders,
}

/// The connection, and what is known of the server.
pub(crate) struct Base {
    client: Client,
    db: Database,
    /// The name under which the server knows this program.
    app: String,
    /// The database and the servers, for errors: without user and password.
    place: String,
    way: Way,
    /// How many partitions the log has. `None` where there can be no log.
    partitions: Option<u16>,
    board: Arc<Board>,
    /// Who writes to a partition. Those of one process come one after the other, as they would only be in each other's way;
    /// for all others there is the head.
    turns: Vec<tokio::sync::Mutex<()>>,
    /// The election of the primary that is known to show all that was acknowledged before it.
    caught_up: Mutex<Option<ObjectId>>,
    /// The store's time, as this process knows it, …
    steady: Mutex<Steady>,
    /// … the latest that others have come to, in microseconds, …
    time_kept: Mutex<Option<i64>>,
    /// … and the moment from which on what has elapsed is counted.
    begun: Instant,
}

/// How the servers are reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// They are all on this machine.
    is_local: bool,
    is_encrypted: bool,
}

impl Mongo {
    /// Connects to the database that the URL names, `leftfold` if it names none, and makes what is missing there.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::options().connect(url).await
    }

    /// What can be chosen when connecting.
    pub fn options() -> Options {
        Options { partitions: None, max_event_bytes: MAX_EVENT_BYTES, existing: false, untouched: false }
    }

    /// The database, for queries of your own.
    pub fn database(&self) -> &Database {
        &self.inner.base.db
    }
}

impl Base {
    /// Whether a commit is written as one.
    pub(crate) fn has_transactions(&self) -> bool {
        self.partitions.is_some()
    }

    /// Waits until nobody else in this process writes to a partition.
    pub(crate) async fn turn(&self, partition: Partition) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        match self.turns.get(usize::from(partition.0)) {
            Some(turn) => Some(turn.lock().await),
            None => None,
        }
    }

    /// Does something, for not longer than a server that is alive can take. An error says what could not be done here.
    pub(crate) async fn run<T>(
        &self,
        doing: &str,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T> {
        patiently(work).await.map_err(|failure| failure.to_error(doing, &self.place))
    }
}

/// Waits for a server, but not for ever: one that stands still, with its connections open, would never answer.
pub(crate) async fn patiently<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| Err(Failure::silent()))
}

const PATIENCE: Duration = Duration::from_secs(15);
/// How long connecting is tried again after failures that may pass.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// So many that a server need not keep a cursor open for what is at most this long.
pub(crate) fn batch(count: usize) -> u32 {
    u32::try_from(count.saturating_add(1)).map_or(MAX_BATCH, |count| count.min(MAX_BATCH))
}

const MAX_BATCH: u32 = 1_000_000;

/// How many are asked for at once: a query is a BSON document itself, and may not be larger than one.
pub(crate) const MAX_IDS: usize = 20_000;

impl fmt::Debug for Mongo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mongo").field("place", &self.inner.base.place).finish_non_exhaustive()
    }
}

/// What can be chosen when connecting.
#[derive(Clone, Debug)]
#[must_use = "options do nothing until a connection is made with them"]
pub struct Options {
    partitions: Option<u16>,
    max_event_bytes: usize,
    existing: bool,
    untouched: bool,
}

impl Options {
    /// How many partitions the log has: 1 to 1,024. Fixed when the log is made, 1 if not named then. More of them let
    /// more processes append at the same time, and projections be spread over more workers.
    pub fn partitions(mut self, partitions: u16) -> Self {
        self.partitions = Some(partitions);
        self
    }

    /// The largest data, and the largest metadata, that an event may have: 1 MiB if not set, 7 MiB at most.
    pub fn max_event_bytes(mut self, bytes: usize) -> Self {
        self.max_event_bytes = bytes;
        self
    }

    /// Connects only where there is a log already, and makes none: for programs that look at what others have written.
    pub fn existing(mut self) -> Self {
        self.existing = true;
        self
    }

    /// Connects only where there is a log already, or can be none, and makes nothing at all: for the
    /// [doctor](leftfold::Leftfold::doctor), so that it finds what is missing.
    pub fn untouched(mut self) -> Self {
        (self.existing, self.untouched) = (true, true);
        self
    }

    /// Connects to the database that the URL names, `leftfold` if it names none, and makes what is missing there.
    pub async fn connect(self, url: impl AsRef<str>) -> Result<Mongo> {
        let begun = Instant::now();
        let backoff = Backoff::default().first(Duration::from_millis(50)).most(Duration::from_secs(1));
        let mut delays = backoff.without_limit().delays(System.random());
        let base = loop {
            match schema::connect(url.as_ref(), &self).await {
                // An election, say. A server that can't be reached has used up this time already.
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
