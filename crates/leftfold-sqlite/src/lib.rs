//! Leftfold's log and documents in one SQLite file.
//!
//! One thread writes, and commits the work of concurrent callers together; a few connections read. Several
//! processes may open the same file: each is woken by the commits of the others.
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
//! The file may be that of an existing application: see [`Sqlite::open`]. What is in it is there
//! for any program to read. Each collection is a view:
//!
//! ```sql
//! SELECT id, body ->> '$.status' FROM cart_details;
//! ```

#[macro_use]
mod points;

mod clock;
mod collections;
mod contents;
mod counters;
mod doctor;
mod documents;
mod error;
mod generations;
mod identity;
mod lease;
mod log;
mod probe;
mod react;
mod readers;
mod schema;
mod sequence;
mod watch;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use leftfold::{Error, Kind, Result};

pub use crate::clock::Clock;
use crate::clock::{Machine, StoreClock};
use crate::error::Failure;
use crate::identity::Identity;
pub use crate::react::{InTransaction, SqliteFeed, document_in, save_task_in, task_in};
use crate::readers::Readers;
use crate::watch::Board;
use crate::writer::Writer;

/// A SQLite file that holds the log and the documents. Cloning gives another handle to the same store.
///
/// When the last handle is dropped, what was handed in is still written, and the file is closed.
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
    /// The file may be that of an existing application: Leftfold adds its tables, all of them in
    /// one transaction, and leaves everything else as it is, also the pragmas `application_id` and
    /// `user_version`. Its tables, indexes and triggers have names that begin with `leftfold_`;
    /// each projection also has a view with its own name.
    ///
    /// - The file is switched to the journal mode WAL, and must be on a local disk. All programs
    ///   that use it need SQLite 3.37 or newer, as Leftfold's tables are `STRICT`.
    /// - Its text encoding must be UTF-8, SQLite's default. Any page size and `auto_vacuum` will
    ///   do.
    /// - In a file that Leftfold creates, `application_id` and `user_version` are Leftfold's. An
    ///   application that keeps numbers of its own there, as tools for migrations do, creates the
    ///   file before Leftfold opens it.
    ///
    /// # Errors
    ///
    /// Fails, and writes nothing, if the file is not a SQLite database, is damaged, has a newer
    /// format or another text encoding, or if the application has taken a name that begins with
    /// `leftfold_`.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open(path).await
    }

    /// What can be chosen when a file is opened.
    pub fn options() -> Options {
        Options { partitions: None, max_event_bytes: 1 << 20, max_bytes: None, clock: Arc::new(Machine) }
    }

    /// Drops this handle and waits until the last one is dropped, all writes and reads have ended,
    /// and the file is closed.
    ///
    /// If no other process has the file open, all commits are in the file itself then, and it may
    /// be copied. That holds also if somebody has deleted its write-ahead log.
    pub async fn close(self) {
        let mut ended = self.inner.writer.ended();
        drop(self);
        // Nothing is ever sent: it fails when the thread ends.
        while ended.changed().await.is_ok() {}
    }

    /// The file.
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

/// What can be chosen when a file is opened.
#[derive(Clone, Debug)]
#[must_use = "options do nothing until a file is opened with them"]
pub struct Options {
    partitions: Option<u16>,
    max_event_bytes: usize,
    max_bytes: Option<u64>,
    clock: Arc<dyn Clock>,
}

impl Options {
    /// How many partitions the log has: 1 to 1,024. Fixed when the file is made, 1 if not named then. More of them let
    /// projections be spread over more workers.
    pub fn partitions(mut self, partitions: u16) -> Self {
        self.partitions = Some(partitions);
        self
    }

    /// The largest data, and the largest metadata, that an event may have; 1 MiB if not set.
    pub fn max_event_bytes(mut self, bytes: usize) -> Self {
        self.max_event_bytes = bytes;
        self
    }

    /// How large the file may grow; writes beyond it fail as on a full disk. Not limited if not set.
    ///
    /// What is not yet moved into the file, some 16 MB next to it, comes on top.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// Where the time comes from: the machine's clocks, if not set.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Opens a file as [`Sqlite::open`] does, with these options.
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
        let (connection, partitions, identity) = schema::open(&path, &self)?;
        let identity = Arc::new(identity);
        let (stay_open, others) = mpsc::channel();
        let board = Board::new(&path, &identity, partitions, stay_open.clone());
        let clock = StoreClock::new(self.clock);
        let installed = clock.install(&connection).map_err(Failure::from);
        // From here on time passes, whatever becomes of the machine's clock.
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
