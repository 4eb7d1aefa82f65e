//! The event that a projection is folding right now, to diagnose slow folds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::event::{Partition, Position};

/// The event that is being folded. Written by one thread, read by any.
#[derive(Debug)]
pub(crate) struct Folding {
    /// The reference point of the other times.
    base: Instant,
    /// Microseconds from the base until the fold began, plus one; 0 between folds.
    since: AtomicU64,
    partition: AtomicU64,
    position: AtomicU64,
}

impl Default for Folding {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self { base: Instant::now(), since: zero(), partition: zero(), position: zero() }
    }
}

impl Folding {
    /// Records that the fold of an event begins.
    pub(super) fn begin(&self, partition: Partition, position: Position, now: Instant) {
        let since = now.saturating_duration_since(self.base).as_micros();
        self.partition.store(u64::from(partition.0), Ordering::Relaxed);
        self.position.store(position.0, Ordering::Relaxed);
        self.since.store(u64::try_from(since).map_or(u64::MAX, |since| since + 1), Ordering::Relaxed);
    }

    /// Records that nothing is being folded.
    pub(super) fn end(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    /// Returns the event whose fold has taken longer than this, and the time it took so far.
    pub(crate) fn longer_than(&self, time: Duration) -> Option<(Partition, Position, Duration)> {
        let since = self.since.load(Ordering::Relaxed).checked_sub(1)?;
        let took = self.base.elapsed().saturating_sub(Duration::from_micros(since));
        let partition = u16::try_from(self.partition.load(Ordering::Relaxed)).ok()?;
        let position = Position(self.position.load(Ordering::Relaxed));
        (took > time).then_some((Partition(partition), position, took))
    }
}
