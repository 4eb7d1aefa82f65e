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
//!
//! # Modules
//!
//! Every store has these modules, with the same parts in the same files:
//!
//! | Module        | Purpose                                            | Files beside `mod.rs`                                                                              |
//! |---------------|----------------------------------------------------|----------------------------------------------------------------------------------------------------|
//! | `options`     | the options, and opening the store                 |                                                                                                    |
//! | `connection/` | the connections, and work on them                  | `open`                                                                                             |
//! | `schema/`     | the stored format, and creating what is missing    | `create`, `definitions`, `format`                                                                  |
//! | `encoding/`   | conversions between values and their stored forms  | `json`, `number`                                                                                   |
//! | `log/`        | `Log`: reading events                              | `heads`, `read`, `record`                                                                          |
//! | `append/`     | `Append`: appending events                         | `write`                                                                                            |
//! | `sequence/`   | `Sequences`: held events, gaps, conflicts          | `conflicts`, `find`, `record`, `rejected`, `settle`, `skipped`, `streams`, `totals`                |
//! | `documents/`  | `Documents`: documents of projections, checkpoints | `checkpoint`, `collections`, `commit`, `generations`, `lease`, `read`, `record`                    |
//! | `contents/`   | `Contents`: documents without events               | `operate`, `prepare`, `read`, `record`, `write`                                                    |
//! | `counters`    | `Counters`: consecutive numbers                    |                                                                                                    |
//! | `react/`      | `ReactionStore`: reactions and tasks               | `complete`, `documents`, `due`, `leases`, `list`, `prepare`, `record`, `registry`, `tasks`, `wake` |
//! | `react/feed/` | `DocumentFeed`: changes of documents               | `place`                                                                                            |
//! | `clock`       | the store's time                                   |                                                                                                    |
//! | `watch/`      | waiting for commits of any process                 | `board`, `known`, `watcher`                                                                        |
//! | `doctor/`     | `Examine`: checks for operators                    | `schema`                                                                                           |
//! | `error`       | errors with the operation and the advice           |                                                                                                    |
//! | `points`      | places where a test can stop the process           |                                                                                                    |
//!
//! Only this store has:
//!
//! | Module        | Purpose                                            | Files                                              |
//! |---------------|----------------------------------------------------|----------------------------------------------------|
//! | `connection/` | transactions, bulk writes, reads after an election | `base`, `bulk`, `catch_up`, `query`, `transaction` |
//! | `schema/`     | the indexes                                        | `indexes`                                          |
//! | `encoding/`   | BSON                                               | `body`, `elements`, `ids`, `notation`              |
//! | `append/`     | groups of concurrent appends                       | `appender`, `group`, `judge`, `queue`              |
//! | `contents/`   | operations by the server, many changes at once     | `direct`, `together`                               |
//! | `react/feed/` | the change stream                                  | `follow`, `stream`                                 |
//! | `doctor/`     | checks of the servers                              | `commands`, `oplog`, `rights`, `server`            |

#[macro_use]
mod points;

mod append;
mod clock;
mod connection;
mod contents;
mod counters;
mod doctor;
mod documents;
mod encoding;
mod error;
mod log;
mod options;
mod react;
mod schema;
mod sequence;
mod watch;

use std::fmt;
use std::sync::Arc;

use leftfold::Result;
use mongodb::Database;

use crate::append::Appenders;
use crate::connection::Base;
pub use crate::options::Options;
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

impl Mongo {
    /// Connects to the database that the URL names, or `leftfold` if it names none. Creates missing
    /// collections and indexes.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::options().connect(url).await
    }

    /// Returns the default connection options.
    pub fn options() -> Options {
        Options::new()
    }

    /// Returns the database, for queries of your own.
    pub fn database(&self) -> &Database {
        &self.inner.base.db
    }
}

impl fmt::Debug for Mongo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mongo").field("place", &self.inner.base.place).finish_non_exhaustive()
    }
}
