//! A store that is measured, and plain code on it to compare with. Both sides write as durably.

pub(crate) mod mongodb;
pub(crate) mod sqlite;

use std::time::Duration;

use leftfold::content::Contents;
use leftfold::{Sequences, Store};

use crate::Part;
use crate::report::{Figure, Result};
use crate::writes::Way;

/// A store that can be measured. Its places are named, and made when they are opened.
pub(crate) trait Subject {
    type Store: Store + Sequences + Contents;

    /// What is measured if nothing is named.
    const PARTS: &[Part];
    /// How many events are folded in a catch-up, if nobody says.
    const EVENTS: u64;
    /// How much of the speed of raw code is to be reached.
    const RAW_GOAL: f64;
    /// The ways of folding one event after the other to compare with.
    const ONE_BY_ONE: &[OneByOne];
    const INSERTS: Inserts;
    /// What latency is compared with.
    const BARE: &str;
    /// Whether a worker elsewhere hears of appends through the store.
    const IS_SHARED: bool;

    /// What names a place to another process.
    fn argument(&self, place: &str) -> String;

    async fn open(&self, place: &str) -> Result<Self::Store>;

    /// Waits until all that was written is where another process finds it.
    async fn close(&self, store: Self::Store);

    /// A place with the log of this one, in which nothing is folded yet.
    async fn unfolded(&self, prepared: &str) -> Result<String>;

    async fn remove(&self, place: &str) -> Result<()>;

    /// Reads all events, parses them, folds them in a hash map, and writes the final documents at once.
    async fn raw_catch_up(&self, place: &str) -> Result<Duration>;

    /// The pattern of the articles: for each event read its document, check the revision, write it guarded by that.
    async fn one_by_one(&self, place: &str, way: &OneByOne) -> Result<Duration>;

    /// Inserts events as plain rows or documents, each durable before the next; how many a second.
    async fn inserts(&self, place: &str) -> Result<f64>;

    /// Writes documents as one does who trusts that nobody else does; how many a second.
    async fn plain_writes(&self, place: &str, way: Way) -> Result<f64>;

    /// What a latency can't be below, so many times, in seconds.
    async fn bare_latencies(&self, place: &str, events: usize, every: Duration) -> Result<Vec<f64>>;

    /// What is sent to the server.
    async fn traffic(&self) -> Result<Vec<Figure>> {
        Ok(Vec::new())
    }
}

/// A way of folding one event after the other.
pub(crate) struct OneByOne {
    pub(crate) name: &'static str,
    /// How many carts are worked on at the same time.
    pub(crate) at_once: usize,
    /// How many events it is given, as it is slow.
    pub(crate) events: usize,
    pub(crate) goal: f64,
}

/// What appends are compared with.
pub(crate) struct Inserts {
    pub(crate) name: &'static str,
    pub(crate) goal: Option<f64>,
    /// The goal against one caller of the same store.
    pub(crate) alone_goal: Option<f64>,
}

/// The data of an event that is inserted again and again.
pub(crate) const DATA: &str = r#"{"productId":"shoes","name":"Shoes","quantity":2,"unitPrice":4900}"#;
