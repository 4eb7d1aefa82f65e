//! Leftfold's log and documents in one SQLite file.
//!
//! One thread writes, and commits the work of concurrent callers together; a few connections read.
//! Several processes may open the same file: each is woken by the commits of the others.
//!
//! ```
//! use leftfold::{EventId, EventKind, Expected, Json, StreamId};
//! use leftfold::log::{Append, Entry, Limit, Log};
//! use leftfold_sqlite::Sqlite;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("shop.db");
//! let store = Sqlite::open(path).await?;
//! let opened = Entry {
//!     id: EventId::new("e1")?,
//!     kind: EventKind::new("shopping-cart-opened")?,
//!     time: "2026-01-01T00:00:00Z".parse()?,
//!     data: Json::parse(r#"{"clientId":"ann"}"#)?,
//!     metadata: None,
//! };
//! let cart = StreamId::new("cart-42")?;
//! store.append(cart.clone(), Expected::NONE, vec![opened]).await?;
//! let events = store.read_stream(&cart, Default::default(), Limit::default()).await?;
//! assert_eq!(events[0].data.as_str(), r#"{"clientId":"ann"}"#);
//! # Ok(())
//! # }
//! ```
//!
//! The file may belong to an existing application: see [`Sqlite::open`]. Any program can read its
//! contents. Each collection is a view:
//!
//! ```sql
//! SELECT id, body ->> '$.status' FROM cart_details;
//! ```
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
//! | Module        | Purpose                                              | Files                                                    |
//! |---------------|------------------------------------------------------|----------------------------------------------------------|
//! | `connection/` | the writing thread, the readers, the file's identity | `identity`, `job`, `readers`, `thread`, `work`, `writer` |
//! | `react/`      | triggers that record changes of documents            | `triggers`                                               |
//! | `react/feed/` | the journal of these changes                         | `journal`                                                |
//! | `doctor/`     | checks of the file                                   | `clock`, `file`, `pages`, `probe`, `settings`            |

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
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leftfold::Result;

pub use crate::clock::MachineClock;
use crate::connection::{Identity, Readers, Writer};
pub use crate::options::Options;
pub use crate::react::{InTransaction, SqliteFeed, document_in, save_task_in, task_in};
use crate::watch::Board;

/// A SQLite file that holds the log and the documents. Cloning gives another handle to the same
/// store.
///
/// When the last handle is dropped, the store still writes all queued work, and then closes the
/// file.
#[derive(Clone)]
pub struct Sqlite {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    identity: Arc<Identity>,
    partitions: u16,
    max_event_bytes: usize,
    writer: Writer,
    readers: Arc<Readers>,
    board: Arc<Board>,
}

impl Sqlite {
    /// Opens a file, and creates it if there is none.
    ///
    /// The file may belong to an existing application. Leftfold adds its tables in one transaction
    /// and leaves everything else as it is, also the pragmas `application_id` and `user_version`.
    /// Its tables, indexes and triggers have names that begin with `leftfold_`; each projection
    /// also has a view with its own name.
    ///
    /// - Leftfold switches the file to the journal mode WAL, so it must be on a local disk. All
    ///   programs that use it need SQLite 3.37 or newer, because Leftfold's tables are `STRICT`.
    /// - Its text encoding must be UTF-8, SQLite's default. Any page size and `auto_vacuum` mode
    ///   works.
    /// - In a file that Leftfold creates, `application_id` and `user_version` are Leftfold's. An
    ///   application with its own numbers there, such as a migration tool's, must create the file
    ///   before Leftfold opens it.
    ///
    /// # Errors
    ///
    /// Fails if the file is not a SQLite database, is damaged, or has a newer format or another
    /// text encoding. Also fails if the application uses a name that begins with `leftfold_`.
    /// Writes nothing in these cases.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open(path).await
    }

    /// Returns the default options.
    pub fn options() -> Options {
        Options::new()
    }

    /// Drops this handle and waits until the last handle is dropped, all writes and reads have
    /// ended, and the file is closed.
    ///
    /// If no other process has the file open, all commits are then in the file itself, and it may
    /// be copied. That also holds if its write-ahead log was deleted.
    pub async fn close(self) {
        let mut ended = self.inner.writer.ended();
        drop(self);
        // The channel never carries a value: `changed` fails when the thread ends.
        while ended.changed().await.is_ok() {}
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.board.close();
    }
}
