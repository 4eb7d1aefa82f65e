//! The limits of held events and conflicts in one partition.

use crate::sequence::delivery::HoldingLimits;
use crate::sequence::store::Totals;

/// The remaining capacity for held events and conflicts in one partition.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    limits: HoldingLimits,
    /// The current totals of the partition.
    kept: Totals,
    bounds: Totals,
}

impl Capacity {
    /// Creates the capacity of one partition out of `partitions`. `kept` is the part in use.
    pub fn new(limits: HoldingLimits, partitions: u16, kept: Totals) -> Self {
        let share = |all: u64| all.div_ceil(partitions.max(1).into());
        let bounds = Totals {
            events: share(limits.events),
            bytes: share(limits.bytes),
            conflicts: share(limits.conflicts),
        };
        Self { limits, kept, bounds }
    }

    /// Returns the limits of the partition.
    pub fn bounds(&self) -> Totals {
        self.bounds
    }

    /// Reserves capacity for a held event. The pair is the number and the size of the stream's held
    /// events. The error is the limit that is reached.
    pub(super) fn hold(&mut self, (events, all): (u64, u64), bytes: u64) -> Result<(), &'static str> {
        let Self { limits, kept, bounds } = self;
        let taken = [
            ("the number of held events of a stream", events + 1, limits.stream_events),
            ("the size of the held events of a stream", all + bytes, limits.stream_bytes),
            ("the number of held events", kept.events + 1, bounds.events),
            ("the size of the held events", kept.bytes + bytes, bounds.bytes),
        ];
        if let Some((bound, ..)) = taken.into_iter().find(|(_, wanted, most)| wanted > most) {
            return Err(bound);
        }
        kept.events += 1;
        kept.bytes += bytes;
        Ok(())
    }

    /// Frees the capacity of a held event.
    pub(super) fn unhold(&mut self, bytes: u64) {
        self.kept.events = self.kept.events.saturating_sub(1);
        self.kept.bytes = self.kept.bytes.saturating_sub(bytes);
    }

    /// Reserves capacity for a conflict. The error is the limit that is reached.
    pub(super) fn dispute(&mut self) -> Result<(), &'static str> {
        if self.kept.conflicts >= self.bounds.conflicts {
            return Err("the number of conflicts");
        }
        self.kept.conflicts += 1;
        Ok(())
    }
}
