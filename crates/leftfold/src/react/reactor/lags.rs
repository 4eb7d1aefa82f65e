//! The feeds that a process follows, and how far each is behind.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::shared::lock;
use crate::react::store::DocumentSource;

/// The followed feeds, each with the time since which it has unplanned changes.
#[derive(Default)]
pub(crate) struct FeedLags(Mutex<BTreeMap<DocumentSource, Option<Instant>>>);

impl FeedLags {
    /// Records that a feed has unplanned changes.
    pub(crate) fn mark_behind(&self, on: &DocumentSource) {
        lock(&self.0).entry(on.clone()).or_default().get_or_insert_with(Instant::now);
    }

    /// Records that all changes of a feed are planned.
    pub(crate) fn mark_current(&self, on: &DocumentSource) {
        lock(&self.0).insert(on.clone(), None);
    }

    /// Records that this process no longer follows a feed.
    pub(crate) fn remove(&self, on: &DocumentSource) {
        lock(&self.0).remove(on);
    }

    /// Returns the lag of each feed.
    pub(super) fn all(&self) -> BTreeMap<DocumentSource, Duration> {
        let lag = |since: &Option<Instant>| since.map_or(Duration::ZERO, |since| since.elapsed());
        lock(&self.0).iter().map(|(on, since)| (on.clone(), lag(since))).collect()
    }
}
