//! The results of a run.

use std::time::Duration;

use crate::arena::{Answers, Messages};
use crate::args::Store;
use crate::bystander;
use crate::memory::Peaks;
use crate::operator;
use crate::windows::Window;

/// All results of a run.
pub(crate) struct Report {
    pub(crate) store: Store,
    pub(crate) seed: u64,
    pub(crate) is_quick: bool,
    pub(crate) seconds: f64,
    pub(crate) bystander: bystander::Tally,
    pub(crate) operator: operator::Tally,
    pub(crate) failures: Messages,
    pub(crate) wrong: Messages,
    /// Requests of the bystander that the daemon asked to retry.
    pub(crate) put_off: Messages,
    pub(crate) hostile: Answers,
    pub(crate) windows: Vec<Window>,
    pub(crate) peaks: Peaks,
    pub(crate) parked: u64,
    /// Log lines that report a panic.
    pub(crate) panics: Messages,
}

impl Report {
    /// Returns the longest times from a kill until ready, and until an event was folded.
    pub(super) fn slowest_restart(&self) -> (Duration, Duration) {
        let slowest = |of: fn(&Window) -> Option<Duration>| {
            self.windows.iter().filter_map(of).max().unwrap_or_default()
        };
        (slowest(|window| window.ready), slowest(|window| window.folded))
    }
}

/// Returns mebibytes, rounded up.
pub(super) fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

/// Returns milliseconds.
pub(super) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
