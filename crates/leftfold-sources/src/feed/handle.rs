//! The state of a feed, as its handle reports it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leftfold::Error;
use serde::Serialize;
use tokio::time::Instant;

/// The time after which a failure without another one counts as over. Retries are more frequent.
const OVER: Duration = Duration::from_secs(30);

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the feed was created.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct FeedCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: AtomicU64,)*
        }

        impl Counters {
            fn counts(&self) -> FeedCounts {
                FeedCounts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Messages received, including redeliveries.
    received,
    /// Messages that are not valid events or can't be accepted, and were recorded as rejected.
    rejected,
    /// Messages that the source may delete, including the rejected ones.
    acknowledged,
    /// Messages that the source must redeliver.
    refused,
    /// Failures of the source or the store.
    failures,
}

/// A handle that reports the state of a feed.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(super) counters: Arc<Counters>,
    trouble: Arc<Mutex<Option<(String, Instant)>>>,
}

impl Handle {
    pub(super) fn new() -> Self {
        Self { counters: Arc::default(), trouble: Arc::default() }
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> FeedCounts {
        self.counters.counts()
    }

    /// Returns the last error while it persists. It is cleared when the feed accepts messages
    /// again, or half a minute after the last failure.
    pub fn trouble(&self) -> Option<String> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.as_ref().filter(|(_, at)| at.elapsed() < OVER).map(|(error, _)| error.clone())
    }

    /// Records the outcome of a batch.
    pub(super) fn note(&self, error: Option<&Error>) {
        let trouble = error.map(|error| (error.to_string(), Instant::now()));
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}
