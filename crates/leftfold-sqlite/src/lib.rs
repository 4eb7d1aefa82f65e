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
mod react;
mod schema;
mod sequence;
mod watch;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use leftfold::{Error, Kind, Result};

pub use crate::clock::MachineClock;
use crate::clock::{Machine, StoreClock};
use crate::connection::Identity;
use crate::connection::Readers;
use crate::connection::Writer;
use crate::error::Failure;
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
        Options { partitions: None, max_event_bytes: 1 << 20, max_bytes: None, clock: Arc::new(Machine) }
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

/// The options for opening a file.
#[derive(Clone, Debug)]
#[must_use = "options do nothing until a file is opened with them"]
pub struct Options {
    partitions: Option<u16>,
    max_event_bytes: usize,
    max_bytes: Option<u64>,
    clock: Arc<dyn MachineClock>,
}

impl Options {
    /// Sets the number of partitions of the log, from 1 to 1,024. It is fixed when the file is
    /// created; the default is 1. With more partitions, more workers share a projection.
    pub fn partitions(mut self, partitions: u16) -> Self {
        self.partitions = Some(partitions);
        self
    }

    /// Sets the size limit of an event's data, and of its metadata: 1 MiB by default.
    pub fn max_event_bytes(mut self, bytes: usize) -> Self {
        self.max_event_bytes = bytes;
        self
    }

    /// Sets the size limit of the file. Writes beyond it fail as on a full disk. There is no limit
    /// by default.
    ///
    /// The write-ahead log beside the file is not included: about 16 MB.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// Sets the source of time. The default is the machine's clocks.
    pub fn clock(mut self, clock: impl MachineClock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Opens a file like [`Sqlite::open`], with these options.
    pub async fn open(self, path: impl AsRef<Path>) -> Result<Sqlite> {
        let path = path.as_ref().to_owned();
        let shown = path.display().to_string();
        let opened = tokio::task::spawn_blocking(move || self.open_blocking(path)).await;
        opened.map_err(|error| {
            Error::new(Kind::Stopped, format!("could not open {shown}: the program is stopping"))
                .with_source(error)
        })?
    }

    fn open_blocking(self, path: PathBuf) -> Result<Sqlite> {
        let (connection, partitions, identity) = connection::open(&path, &self)?;
        let identity = Arc::new(identity);
        let (stay_open, others) = mpsc::channel();
        let board = Board::new(&path, &identity, partitions, stay_open.clone());
        let clock = StoreClock::new(self.clock);
        let installed = clock.install(&connection).map_err(Failure::from);
        // From here on the store's time advances, even if the machine's clock is changed.
        installed
            .and_then(|()| clock::now(&connection))
            .map_err(|failure| failure.to_error("open", &path))?;
        let writer = Writer::start(connection, &path, &identity, Arc::clone(&board), others)?;
        let readers = Readers::new(&path, &identity, clock, stay_open);
        let max_event_bytes = self.max_event_bytes;
        let inner = Inner { path, identity, partitions, max_event_bytes, writer, readers, board };
        Ok(Sqlite { inner: Arc::new(inner) })
    }
}
