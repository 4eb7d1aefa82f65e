//! What was done with deliveries, counted.

use serde::{Deserialize, Serialize};

use super::delivery::Answer;

/// What became of deliveries, and of what was held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Deliveries that went into the log at once.
    pub appended: u64,
    /// Deliveries that were there already.
    pub duplicates: u64,
    /// Deliveries that came early.
    pub held: u64,
    /// Held events that went into the log.
    pub released: u64,
    /// Deliveries older than what is there, where only the latest counts.
    pub stale: u64,
    /// Deliveries and held events that contradict what is there.
    pub conflicts: u64,
    /// Deliveries of which nothing was kept.
    pub refused: u64,
    /// Missing events that were asked for, and came. They are among the appended ones, too.
    pub healed: u64,
}

impl Counts {
    /// Each with its name.
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

    /// Each by its name.
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

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let (mine, mut others) = (self.named(), other.named().into_iter());
        let mut sums = mine.into_iter().map(|(_, mine)| mine + others.next().map_or(0, |(_, other)| other));
        // The names come in the same order.
        Self::from_named(|_| sums.next().unwrap_or(0))
    }

    pub(super) fn answered(&mut self, answer: &Answer) {
        *match answer {
            Answer::Appended(_) => &mut self.appended,
            Answer::Duplicate(_) => &mut self.duplicates,
            Answer::Held { .. } => &mut self.held,
            Answer::Stale { .. } => &mut self.stale,
            Answer::Conflict(_) => &mut self.conflicts,
            Answer::Refused(_) => &mut self.refused,
        } += 1;
    }
}
