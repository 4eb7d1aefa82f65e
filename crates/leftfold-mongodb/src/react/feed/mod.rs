//! Changes of documents, by a change stream over the database.
//!
//! The stream reports which documents have changed, without their content: the planner reads the
//! current documents. The feed keeps a pending request or the opening of the stream. A wait that is
//! dropped or times out loses nothing, because the next wait continues it.
//!
//! **A place is reported only after all changes up to it.** It is the token of the last reported
//! change. If a request found no change, it is the server's token for how far it has looked.

mod follow;
mod place;
mod stream;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leftfold::react::{DocumentFeed, FeedChanges, FeedItem};
use leftfold::{Kind, Result};
use tokio::time::Instant;

use self::follow::Step;
use self::place::Place;
pub(super) use self::stream::has_changes;
use self::stream::{Source, Stream, StreamError};
use crate::error::Failure;

/// The longest single wait.
const MAX_WAIT: Duration = Duration::from_hours(24);
/// The interval of checks for a switch to another generation.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Changes of documents in MongoDB. It is idle unless a caller waits for the
/// [next](DocumentFeed::next) changes.
pub struct MongoFeed {
    source: Arc<Source>,
    /// The place up to which all changes were reported.
    place: Option<Place>,
    stream: Option<Stream>,
    /// The pending request.
    pending: Option<Step>,
    /// The reason why the stream can't continue.
    lost: Option<String>,
    /// The last failure, unless a request has succeeded since.
    failed: Option<Failure>,
    /// The time of the last check for a switch.
    looked: Instant,
    delays: Box<dyn Iterator<Item = Duration> + Send>,
}

impl DocumentFeed for MongoFeed {
    async fn next(&mut self, most: usize, patience: Duration) -> Result<FeedItem> {
        let end = Instant::now() + patience.min(MAX_WAIT);
        let mut changes = FeedChanges::default();
        while self.lost.is_none() && count(&changes) < most.max(1) {
            let waits = changes.documents.is_empty();
            match self.answer(waits.then_some(end.min(self.looked + LOOK_EVERY))).await {
                None if waits && Instant::now() < end => self.look().await,
                None => break,
                Some(Ok(Some(change))) => self.note(&change, &mut changes),
                Some(Ok(None)) => {
                    if !waits || Instant::now() >= end {
                        break;
                    }
                }
                Some(Err(StreamError::Lost(why))) => self.lost = Some(why),
                Some(Err(StreamError::Failed(failure))) => {
                    let is_hopeless =
                        !matches!(failure.kind(), Kind::Unavailable | Kind::Contended | Kind::Unknown);
                    self.failed = Some(failure);
                    if is_hopeless || !waits || Instant::now() >= end {
                        break;
                    }
                }
            }
        }
        if self.lost.is_none() && (changes.documents.is_empty() || self.looked.elapsed() >= LOOK_EVERY) {
            self.look().await;
        }
        if let Some(why) = &self.lost {
            return Ok(FeedItem::Lost(why.clone()));
        }
        let failed = |failure: &Failure| Err(failure.to_error("follow changes in", &self.source.base.place));
        if let (Some(failure), true) = (&self.failed, changes.documents.is_empty()) {
            return failed(failure);
        }
        if !changes.documents.is_empty() {
            point!("feed-read");
        }
        match serde_json::to_string(&self.place) {
            Ok(through) => Ok(FeedItem::Changes(FeedChanges { through, ..changes })),
            Err(error) => failed(&Failure::damaged(error.to_string())),
        }
    }
}

/// Returns the number of changed documents.
fn count(changes: &FeedChanges) -> usize {
    changes.documents.values().map(BTreeSet::len).sum()
}

impl fmt::Debug for MongoFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let followed = self.source.on.values();
        f.debug_struct("MongoFeed").field("on", &followed.collect::<Vec<_>>()).finish_non_exhaustive()
    }
}
