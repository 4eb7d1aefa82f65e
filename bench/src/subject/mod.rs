//! The store under measurement, and plain code on it for comparison. Both sides write with the same
//! durability.

pub(crate) mod mongodb;
pub(crate) mod sqlite;

use std::time::Duration;

use leftfold::content::Contents;
use leftfold::{Sequences, Store};

use crate::fold::Part;
use crate::report::{Measurement, Result};
use crate::writes::WriteMode;

/// A store to measure. Its places have names, and opening a place creates it.
pub(crate) trait Subject {
    type Store: Store + Sequences + Contents;

    /// The measurements taken by default.
    const PARTS: &[Part];
    /// The default number of events of a catch-up.
    const EVENTS: u64;
    /// The goal relative to the speed of raw code.
    const RAW_GOAL: f64;
    /// The references that fold one event after the other.
    const ONE_BY_ONE: &[OneByOne];
    const INSERTS: Inserts;
    /// The name of the reference for latency.
    const BARE: &str;
    /// `true` if a worker in another process learns of appends through the store.
    const IS_SHARED: bool;

    /// Returns the argument that names a place to another process.
    fn argument(&self, place: &str) -> String;

    async fn open(&self, place: &str) -> Result<Self::Store>;

    /// Waits until other processes can see all writes.
    async fn close(&self, store: Self::Store);

    /// Creates a place with the log of `prepared` and without folded documents.
    async fn unfolded(&self, prepared: &str) -> Result<String>;

    async fn remove(&self, place: &str) -> Result<()>;

    /// Reads and parses all events, folds them in a hash map, and writes the final documents at
    /// once.
    async fn raw_catch_up(&self, place: &str) -> Result<Duration>;

    /// Folds as articles suggest: for each event, reads the document, checks the revision and does
    /// a guarded write.
    async fn one_by_one(&self, place: &str, mode: &OneByOne) -> Result<Duration>;

    /// Inserts events as plain rows or documents, each durable before the next. Returns the events
    /// per second.
    async fn inserts(&self, place: &str) -> Result<f64>;

    /// Writes documents without any guard against other writers. Returns the writes per second.
    async fn plain_writes(&self, place: &str, mode: WriteMode) -> Result<f64>;

    /// Measures `events` times the lower bound of the latency, in seconds.
    async fn bare_latencies(&self, place: &str, events: usize, every: Duration) -> Result<Vec<f64>>;

    /// Measures the commands sent to the server.
    async fn traffic(&self) -> Result<Vec<Measurement>> {
        Ok(Vec::new())
    }
}

/// A reference that folds one event after the other.
pub(crate) struct OneByOne {
    pub(crate) name: &'static str,
    /// The number of carts processed at the same time.
    pub(crate) at_once: usize,
    /// The number of events to fold; few, because it is slow.
    pub(crate) events: usize,
    pub(crate) goal: f64,
}

/// The reference for appends.
pub(crate) struct Inserts {
    pub(crate) name: &'static str,
    pub(crate) goal: Option<f64>,
    /// The goal relative to a single caller of the same store.
    pub(crate) alone_goal: Option<f64>,
}

/// The data of every inserted event.
pub(crate) const DATA: &str = r#"{"productId":"shoes","name":"Shoes","quantity":2,"unitPrice":4900}"#;
