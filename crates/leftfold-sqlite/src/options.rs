//! The options for opening a file, and opening it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use leftfold::{Error, Kind, Result};

use crate::clock::{self, Machine, MachineClock, StoreClock};
use crate::connection::{self, Readers, Writer};
use crate::error::Failure;
use crate::watch::Board;
use crate::{Inner, Sqlite};

/// The options for opening a file.
#[derive(Clone, Debug)]
#[must_use = "options do nothing until a file is opened with them"]
pub struct Options {
    pub(crate) partitions: Option<u16>,
    max_event_bytes: usize,
    pub(crate) max_bytes: Option<u64>,
    clock: Arc<dyn MachineClock>,
}

impl Options {
    pub(crate) fn new() -> Self {
        Self { partitions: None, max_event_bytes: 1 << 20, max_bytes: None, clock: Arc::new(Machine) }
    }

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
            Error::new(Kind::Stopped, format!("could not open {shown}: the process is stopping"))
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
