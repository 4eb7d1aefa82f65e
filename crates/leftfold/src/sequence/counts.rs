//! Counters of the sequencer.

use serde::{Deserialize, Serialize};

use super::delivery::IngestAnswer;

/// The counters of deliveries and held events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SequencerCounts {
    /// Deliveries that were appended at once.
    pub appended: u64,
    /// Deliveries that were already in the log.
    pub duplicates: u64,
    /// Deliveries that arrived early.
    pub held: u64,
    /// Held events that were appended.
    pub released: u64,
    /// Deliveries older than the last one, with [`Policy::Latest`](super::Policy::Latest).
    pub stale: u64,
    /// Deliveries and held events that conflict with stored events.
    pub conflicts: u64,
    /// Deliveries that were refused.
    pub refused: u64,
    /// Missing events that were requested and arrived. They also count as appended.
    pub healed: u64,
}

impl SequencerCounts {
    /// Returns all counters with their names.
    pub fn named(self) -> [(&'static str, u64); 8] {
        let Self { appended, duplicates, held, released, stale, conflicts, refused, healed } = self;
        [
            ("appended", appended),
            ("duplicates", duplicates),
            ("held", held),
            ("released", released),
            ("stale", stale),
            ("conflicts", conflicts),
            ("refused", refused),
            ("healed", healed),
        ]
    }

    /// Creates counters from a function that returns each by its name.
    pub fn from_named(mut of: impl FnMut(&str) -> u64) -> Self {
        Self {
            appended: of("appended"),
            duplicates: of("duplicates"),
            held: of("held"),
            released: of("released"),
            stale: of("stale"),
            conflicts: of("conflicts"),
            refused: of("refused"),
            healed: of("healed"),
        }
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let (mine, mut others) = (self.named(), other.named().into_iter());
        let mut sums = mine.into_iter().map(|(_, mine)| mine + others.next().map_or(0, |(_, other)| other));
        // The names are in the same order.
        Self::from_named(|_| sums.next().unwrap_or(0))
    }

    pub(super) fn answered(&mut self, answer: &IngestAnswer) {
        *match answer {
            IngestAnswer::Appended(_) => &mut self.appended,
            IngestAnswer::Duplicate(_) => &mut self.duplicates,
            IngestAnswer::Held { .. } => &mut self.held,
            IngestAnswer::Stale { .. } => &mut self.stale,
            IngestAnswer::Conflict(_) => &mut self.conflicts,
            IngestAnswer::Refused(_) => &mut self.refused,
        } += 1;
    }
}
