//! The counts of sequencers.

use std::sync::atomic::{AtomicU64, Ordering};

use leftfold::sequence::SequencerCounts;

/// The counts of all sequencers together.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) held: AtomicU64,
    pub(crate) released: AtomicU64,
    pub(crate) healed: AtomicU64,
    pub(crate) duplicates: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl Tally {
    pub(super) fn add(&self, counts: SequencerCounts) {
        let pairs = [
            (&self.held, counts.held),
            (&self.released, counts.released),
            (&self.healed, counts.healed),
            (&self.duplicates, counts.duplicates),
            (&self.conflicts, counts.conflicts),
            (&self.refused, counts.refused),
        ];
        for (sum, count) in pairs {
            sum.fetch_add(count, Ordering::Relaxed);
        }
    }
}
