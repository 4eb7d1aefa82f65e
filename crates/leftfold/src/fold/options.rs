//! The options of a projector.

use std::time::Duration;

use super::Error as FoldError;
use crate::backoff::Backoff;
use crate::budget::Budget;

/// The options of a projector. The defaults suit most projections.
#[derive(Clone, Debug)]
pub struct FoldOptions {
    /// The approximate memory for the cache of documents, in bytes.
    pub cache_bytes: usize,
    /// The approximate size at which a batch ends, in bytes of memory of the documents it touched.
    pub batch_bytes: usize,
    /// The time after which a batch ends.
    pub batch_time: Duration,
    /// The largest page read from the log, in bytes of data.
    pub page_bytes: usize,
    /// The retry policy of a failing fold before its document is parked.
    pub retry: Backoff,
    /// Decides which fold errors to retry; by default the transient ones.
    pub should_retry: fn(&FoldError) -> bool,
    /// The time after which a silent worker can be replaced. The worker renews its lease after half
    /// of it.
    pub lease: Duration,
    /// The memory budget of the process, which covers caches and batches. When it is used up,
    /// caches are emptied and batches end early. Unlimited by default.
    pub budget: Budget,
}

impl Default for FoldOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 24 << 20,
            batch_bytes: 20 << 20,
            batch_time: Duration::from_secs(1),
            page_bytes: 1 << 19,
            retry: Backoff::default(),
            should_retry: FoldError::is_transient,
            // A killed process is replaced within five seconds, and an idle one sends few commands.
            lease: Duration::from_secs(4),
            budget: Budget::unlimited(),
        }
    }
}
