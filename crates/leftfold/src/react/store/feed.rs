//! Feeds of changed documents.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

use super::documents::DocumentSource;
use crate::error::Result;
use crate::event::DocumentId;

/// A feed of document changes.
pub trait DocumentFeed: Send {
    /// Returns the next changes, at most `most`. Waits for changes, but no longer than `patience`.
    /// Cancelling the call loses nothing.
    fn next(&mut self, most: usize, patience: Duration) -> impl Future<Output = Result<FeedItem>> + Send;
}

/// An item of a feed of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedItem {
    /// Changed documents; empty if nothing changed for a while.
    Changes(FeedChanges),
    /// The changes since the feed's starting place are no longer available: all documents must be
    /// compared.
    Lost(String),
}

/// A batch of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedChanges {
    /// The documents that were written or deleted, each once.
    pub documents: BTreeMap<DocumentSource, BTreeSet<DocumentId>>,
    /// The place from which the feed continues once all these changes are processed.
    pub through: String,
}
