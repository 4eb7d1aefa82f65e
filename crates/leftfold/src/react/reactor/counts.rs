//! The counters of a reactor.

use std::time::Duration;

use serde::Serialize;

/// Counters of a reactor since it was started.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReactorCounts {
    /// Changes of tasks because documents changed.
    pub planned: u64,
    /// Runs that began.
    pub claimed: u64,
    /// Runs that succeeded.
    pub done: u64,
    /// Runs whose document was not what the task was planned for.
    pub stale: u64,
    /// Tasks that failed too often.
    pub failed: u64,
    /// Runs that failed and will be retried.
    pub retried: u64,
    /// Runs whose handler deferred the task.
    pub deferred: u64,
    /// Runs that throttled their reaction.
    pub throttled: u64,
    /// Lost claims of other workers that this process reaped.
    pub takeovers: u64,
    /// Claims of this process that other workers took over.
    pub lost: u64,
    /// Tasks that were deleted.
    pub swept: u64,
    /// Failures of the store.
    pub failures: u64,
    /// The number of handlers by duration in milliseconds: below 1, 10, 100, 1,000 and 10,000, and
    /// longer.
    pub took: [u64; 6],
}

impl ReactorCounts {
    pub(crate) fn handler(&mut self, took: Duration) {
        const BOUNDS: [u128; 5] = [1, 10, 100, 1_000, 10_000];
        let at = BOUNDS.iter().position(|bound| took.as_millis() < *bound).unwrap_or(BOUNDS.len());
        self.took[at] += 1;
    }
}
