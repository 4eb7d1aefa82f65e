//! Readiness: whether requests can be served, and which parts are degraded.
//!
//! A task of each service checks the store several times a second, and the projections and feeds
//! less often. Responses use its latest verdict, so they do not hang if the store does. A verdict
//! older than a second counts as not ready, because whatever blocks the task blocks requests, too.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep};

/// The maximum age of a verdict.
const FRESH: Duration = Duration::from_secs(1);

/// Reports whether requests can be served. Clones share the same state.
#[derive(Clone, Default)]
pub struct Readiness(Arc<State>);

#[derive(Default)]
struct State {
    verdict: Mutex<Option<Verdict>>,
    /// Problems of projections and reactions.
    troubles: Mutex<Vec<Trouble>>,
    feeds: Mutex<BTreeMap<u64, Feed>>,
}

struct Verdict {
    at: Instant,
    /// The reason, if requests can't be served.
    refusal: Option<String>,
}

/// A feed that reports its own problems.
struct Feed {
    name: String,
    trouble: Box<dyn Fn() -> Option<String> + Send + Sync>,
}

/// A part that does not work, although requests can be served.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Trouble {
    pub(crate) kind: TroubleKind,
    /// The name of the projection or feed.
    pub(crate) name: String,
    pub(crate) reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TroubleKind {
    /// A projection whose worker fails.
    Failing,
    /// A projection that is behind and makes no progress.
    Stuck,
    /// A projection with parked documents or streams.
    Parked,
    /// A feed that delivers nothing.
    Feed,
}

impl TroubleKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Failing => "failing",
            Self::Stuck => "stuck",
            Self::Parked => "parked",
            Self::Feed => "feed",
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.reason)
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readiness").field("refusal", &self.refusal()).finish_non_exhaustive()
    }
}

/// A guard that keeps a feed watched as long as it lives.
#[must_use = "the feed is watched as long as this lives"]
#[derive(Debug)]
pub struct WatchedFeed(Readiness, u64);

impl Drop for WatchedFeed {
    fn drop(&mut self) {
        lock(&self.0.0.feeds).remove(&self.1);
    }
}

impl Readiness {
    /// Watches a feed. `trouble` returns the reason if the feed is in trouble.
    pub fn watch_feed(
        &self,
        name: impl Into<String>,
        trouble: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> WatchedFeed {
        let mut feeds = lock(&self.0.feeds);
        let number = feeds.last_key_value().map_or(0, |(last, _)| last + 1);
        feeds.insert(number, Feed { name: name.into(), trouble: Box::new(trouble) });
        drop(feeds);
        WatchedFeed(self.clone(), number)
    }

    /// Returns the reason why requests can't be served, or `None` if they can.
    pub(crate) fn refusal(&self) -> Option<String> {
        match &*lock(&self.0.verdict) {
            None => Some("the store was not checked yet".to_owned()),
            Some(Verdict { at, .. }) if at.elapsed() > FRESH => {
                Some(format!("the last check of the store was {:.1} s ago", at.elapsed().as_secs_f64()))
            }
            Some(Verdict { refusal, .. }) => refusal.clone(),
        }
    }

    /// Waits until requests can't be served.
    pub(crate) async fn refused(&self) -> String {
        loop {
            match self.refusal() {
                Some(reason) => return reason,
                None => sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Waits for the first verdict, at most for the maximum age of a verdict.
    pub(crate) async fn first_verdict(&self) {
        let until = Instant::now() + FRESH;
        while lock(&self.0.verdict).is_none() && Instant::now() < until {
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Returns the parts that do not work, although requests can be served.
    pub(crate) fn troubles(&self) -> Vec<Trouble> {
        let mut troubles = lock(&self.0.troubles).clone();
        troubles.extend(lock(&self.0.feeds).values().filter_map(|feed| {
            let reason = (feed.trouble)()?;
            Some(Trouble { kind: TroubleKind::Feed, name: feed.name.clone(), reason })
        }));
        troubles.sort();
        troubles
    }

    pub(super) fn judge(&self, refusal: Option<String>) {
        *lock(&self.0.verdict) = Some(Verdict { at: Instant::now(), refusal });
    }

    pub(super) fn report(&self, troubles: Vec<Trouble>) {
        *lock(&self.0.troubles) = troubles;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_verdict_counts_for_a_second() {
        let readiness = Readiness::default();
        assert!(readiness.refusal().is_some(), "there was no check yet");
        readiness.judge(None);
        assert_eq!(readiness.refusal(), None);
        sleep(FRESH + Duration::from_millis(1)).await;
        assert!(readiness.refusal().unwrap().contains("the last check of the store was"));
        readiness.judge(Some("no disk".to_owned()));
        assert_eq!(readiness.refusal().as_deref(), Some("no disk"));
    }

    #[test]
    fn a_feed_is_looked_at_while_it_runs() {
        let readiness = Readiness::default();
        let first = readiness.watch_feed("orders", || Some("no broker".to_owned()));
        let second = readiness.watch_feed("carts", || None);
        let shown: Vec<_> = readiness.troubles().iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["orders: no broker"]);
        drop((first, second));
        assert_eq!(readiness.troubles(), []);
    }
}
