//! A cache of stream states, and the counters that are not stored yet.

use std::collections::HashMap;

use super::counts::SequencerCounts;
use super::store::{Held, Settlement, StreamChange, StreamState, Survey, Totals};
use crate::event::{Partition, StreamId};

/// The maximum number of streams.
const MAX_STREAMS: usize = 100_000;

/// A cache of stream states. It may be outdated: the store rejects settlements from an outdated
/// state.
#[derive(Default)]
pub(super) struct Cache {
    streams: HashMap<StreamId, StreamState>,
    totals: HashMap<Partition, Totals>,
    /// The counters since it was created.
    counts: SequencerCounts,
    /// The part of the counters that is not stored yet, because nothing else was stored with it.
    unstored: SequencerCounts,
}

impl Cache {
    /// Returns the state of a stream, if it is cached.
    pub(super) fn state(&self, stream: &StreamId) -> Option<&StreamState> {
        self.streams.get(stream)
    }

    /// Returns the totals of a partition, if they are cached.
    pub(super) fn totals(&self, partition: Partition) -> Option<Totals> {
        self.totals.get(&partition).copied()
    }

    /// Adds loaded states, and the totals of their partition.
    pub(super) fn insert(&mut self, partition: Partition, survey: &Survey) {
        if self.streams.len() > MAX_STREAMS {
            self.streams.clear();
        }
        self.totals.insert(partition, survey.totals.get(&partition).copied().unwrap_or_default());
        self.streams.extend(survey.streams.iter().map(|(stream, state)| (stream.clone(), state.clone())));
    }

    /// Removes streams, and the totals of their partition.
    pub(super) fn forget<'s>(
        &mut self,
        partition: Partition,
        streams: impl IntoIterator<Item = &'s StreamId>,
    ) {
        self.totals.remove(&partition);
        for stream in streams {
            self.streams.remove(stream);
        }
    }

    /// Applies a settlement that is stored, and adds its counters.
    pub(super) fn apply(&mut self, settlement: &Settlement, counts: SequencerCounts) {
        self.counts = self.counts.plus(counts);
        let Settlement { partition, steps, conflicts, .. } = settlement;
        if !conflicts.is_empty() {
            // A conflict that was already kept does not count twice.
            self.totals.remove(partition);
        }
        for StreamChange { stream, append, hold, unhold, waiting, .. } in steps {
            if !unhold.is_empty() {
                self.totals.remove(partition);
            } else if let Some(totals) = self.totals.get_mut(partition) {
                totals.events += hold.len() as u64;
                totals.bytes += hold.iter().map(Held::bytes).sum::<u64>();
            }
            if let Some(state) = self.streams.get_mut(stream) {
                if let Some((last, _)) = append.last() {
                    state.last = *last;
                }
                state.waiting.clone_from(waiting);
            }
        }
    }

    /// Returns the counters since it was created.
    pub(super) fn counts(&self) -> SequencerCounts {
        self.counts
    }

    /// Adds counters that are stored with the next change.
    pub(super) fn count_unstored(&mut self, counts: SequencerCounts) {
        self.counts = self.counts.plus(counts);
        self.unstored = self.unstored.plus(counts);
    }

    /// Takes the counters that are not stored yet, to store them with a change.
    pub(super) fn take_unstored(&mut self) -> SequencerCounts {
        std::mem::take(&mut self.unstored)
    }

    /// Puts counters back that could not be stored.
    pub(super) fn put_back(&mut self, unstored: SequencerCounts) {
        self.unstored = self.unstored.plus(unstored);
    }
}
