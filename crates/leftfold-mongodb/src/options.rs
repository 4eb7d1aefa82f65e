//! The options of a connection, and connecting.

use std::sync::Arc;
use std::time::Duration;

use leftfold::log::MAX_EVENT_BYTES;
use leftfold::{Backoff, Env as _, Result, System};
use tokio::time::{Instant, sleep};

use crate::append::Appenders;
use crate::{Inner, Mongo, connection};

/// The time within which connecting is retried after transient failures.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// The options of a connection.
#[derive(Clone, Debug)]
#[must_use = "options do nothing until a connection is made with them"]
pub struct Options {
    pub(crate) partitions: Option<u16>,
    pub(crate) max_event_bytes: usize,
    pub(crate) existing: bool,
    pub(crate) untouched: bool,
}

impl Options {
    pub(crate) fn new() -> Self {
        Self { partitions: None, max_event_bytes: MAX_EVENT_BYTES, existing: false, untouched: false }
    }

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
            match connection::connect(url.as_ref(), &self).await {
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
