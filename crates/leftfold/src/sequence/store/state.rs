//! The states of streams and their gaps, and the totals of partitions.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::event::{Partition, Revision, StreamId};
use crate::sequence::counts::SequencerCounts;

/// The state of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamState {
    /// Its last revision in the log; 0 if there is none.
    pub last: Revision,
    /// The gap that it waits for, if events are held or were skipped.
    pub waiting: Option<Waiting>,
}

impl StreamState {
    /// Returns the revision up to which the stream is complete: logged or skipped.
    pub fn after(&self) -> Revision {
        self.last.max(self.waiting.as_ref().map_or(Revision(0), |waiting| waiting.skipped))
    }

    /// Returns the guard of a change that is computed from this state.
    pub fn seen(&self) -> StreamVersion {
        StreamVersion { last: self.last, version: self.waiting.as_ref().map(|waiting| waiting.version) }
    }
}

/// The state from which a change was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamVersion {
    /// The stream's last revision in the log.
    pub last: Revision,
    /// The version of its gap, if it waits.
    pub version: Option<u64>,
}

/// The gap that a stream waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// A number that differs after each change. Conditional writes compare it.
    pub version: u64,
    /// The revision up to which an operator skipped missing events; 0 if none were skipped.
    pub skipped: Revision,
    /// The number of held events.
    pub events: u64,
    /// Their size as counted against the limits.
    pub bytes: u64,
    /// The revision of the first held event.
    pub first: Revision,
    /// The revision that the first held event waits for.
    pub until: Revision,
    /// The revision of the last held event.
    pub highest: Revision,
    /// The time since which the stream waits for this gap.
    pub since: Timestamp,
    /// The earliest time to request the missing events.
    pub ask_at: Timestamp,
    /// The number of requests for them.
    pub asked: u32,
    /// The error of the last request.
    pub trouble: Option<String>,
}

/// A selection of streams whose gaps should be healed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueGaps {
    /// Selects streams that have waited since this time or longer, …
    pub since: Timestamp,
    /// … and whose next request is due at this time.
    pub now: Timestamp,
    /// The latest plausible time. A later time comes from a wrong clock, and counts as passed.
    pub end: Timestamp,
}

impl DueGaps {
    /// Returns whether the missing events of a stream should be requested.
    pub fn is(&self, waiting: &Waiting) -> bool {
        let passed = |time: Timestamp, until: Timestamp| time <= until || time > self.end;
        passed(waiting.since, self.since) && passed(waiting.ask_at, self.now)
    }
}

/// The amount of held events and conflicts in a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The number of held events.
    pub events: u64,
    /// Their size as counted against the limits.
    pub bytes: u64,
    /// The number of unresolved conflicts.
    pub conflicts: u64,
}

impl Totals {
    /// Returns whether every total that grew from `before` stays within `bounds`.
    pub fn is_within(&self, bounds: &Self, before: &Self) -> bool {
        let pairs = [
            (self.events, bounds.events, before.events),
            (self.bytes, bounds.bytes, before.bytes),
            (self.conflicts, bounds.conflicts, before.conflicts),
        ];
        pairs.into_iter().all(|(kept, bound, before)| kept <= bound || kept <= before)
    }
}

/// The states of streams, and the totals of partitions.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// The state of each requested stream.
    pub streams: BTreeMap<StreamId, StreamState>,
    /// The totals of each partition that has any.
    pub totals: BTreeMap<Partition, Totals>,
    /// The counters of all partitions, as settlements recorded them.
    pub counts: SequencerCounts,
}
