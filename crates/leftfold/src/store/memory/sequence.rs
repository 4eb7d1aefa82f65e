//! The data of the sequencer, in memory.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use super::{Memory, State};
use crate::error::Result;
use crate::event::{Event, Partition, Revision, StreamId};
use crate::log::Limit;
use crate::sequence::{
    Conflict, DueGaps, Found, Held, HeldPage, MAX_REJECTED, Rejected, Resolution, SequencerCounts, Sequences,
    Settled, Settlement, Skipped, StreamChange, StreamState, Survey, Totals, Waiting, WantedEvents,
    too_many_rejected,
};

/// Held events, the waiting state of streams, and conflicts.
#[derive(Debug, Default)]
pub(super) struct Kept {
    held: BTreeMap<(StreamId, Revision), Held>,
    waiting: BTreeMap<StreamId, Waiting>,
    totals: HashMap<Partition, Totals>,
    conflicts: BTreeMap<(StreamId, Revision, String), Conflict>,
    skipped: Vec<Skipped>,
    rejected: BTreeMap<String, Rejected>,
    counts: SequencerCounts,
}

impl Kept {
    /// Returns the held events of a stream, by revision.
    fn of<'a>(&'a self, stream: &StreamId) -> impl Iterator<Item = &'a Held> {
        let all = (stream.clone(), Revision(0))..=(stream.clone(), Revision(u64::MAX));
        self.held.range(all).map(|(_, held)| held)
    }
}

impl State {
    fn standing(&self, stream: &StreamId) -> StreamState {
        StreamState { last: self.last(stream), waiting: self.sequences.waiting.get(stream).cloned() }
    }

    fn at(&self, stream: &StreamId, revision: Revision) -> Option<&Event> {
        let places = self.streams.get(stream)?;
        let at = places.binary_search_by_key(&revision, |(revision, _)| *revision).ok()?;
        self.event(Partition::of(stream, self.count()), places[at].1)
    }

    /// Returns the reason why a settlement can't be applied, if there is one.
    fn hindrance(&self, settlement: &Settlement, after: &Totals) -> Option<Settled> {
        let Settlement { partition, steps, bounds, .. } = settlement;
        let moved = steps.iter().filter(|step| self.standing(&step.stream).seen() != step.seen);
        let moved: Vec<_> = moved.map(|step| step.stream.clone()).collect();
        if !moved.is_empty() {
            return Some(Settled::Moved(moved));
        }
        let entries = steps.iter().flat_map(|step| &step.append).map(|(_, entry)| entry);
        let mut ids = HashSet::new();
        let taken: Vec<_> = entries
            .map(|entry| &entry.id)
            .filter(|id| self.ids.contains_key(*id) || !ids.insert(*id))
            .cloned()
            .collect();
        if !taken.is_empty() {
            return Some(Settled::Taken(taken));
        }
        let before = self.sequences.totals.get(partition).copied().unwrap_or_default();
        (!after.is_within(bounds, &before)).then_some(Settled::Full)
    }
}

impl Sequences for Memory {
    fn max_event_bytes(&self) -> usize {
        crate::log::MAX_EVENT_BYTES
    }

    async fn survey(&self, streams: Vec<StreamId>) -> Result<Survey> {
        let state = self.state();
        let streams = streams.into_iter().map(|stream| (stream.clone(), state.standing(&stream))).collect();
        let totals = state.sequences.totals.iter().map(|(partition, totals)| (*partition, *totals)).collect();
        Ok(Survey { streams, totals, counts: state.sequences.counts })
    }

    async fn find(&self, wanted: WantedEvents) -> Result<Found> {
        let state = self.state();
        let mut found = Found::default();
        for place in &wanted.places {
            found.logged.extend(state.at(&place.0, place.1).cloned());
            found.held.extend(state.sequences.held.get(place).cloned());
        }
        let by_id = wanted.ids.iter().filter_map(|id| state.ids.get(id));
        found
            .logged
            .extend(by_id.filter_map(|(partition, position)| state.event(*partition, *position)).cloned());
        Ok(found)
    }

    async fn held(&self, streams: Vec<StreamId>, limit: Limit) -> Result<BTreeMap<StreamId, HeldPage>> {
        let state = self.state();
        let mut room = limit;
        let page = |stream: StreamId| {
            let page = HeldPage::cut(state.sequences.of(&stream).cloned(), &mut room);
            (stream, page)
        };
        Ok(streams.into_iter().map(page).collect())
    }

    async fn settle(&self, settlement: Arc<Settlement>) -> Result<Settled> {
        let before = {
            let mut state = self.state();
            let Settlement { partition, steps, conflicts, skipped, counts, .. } = &*settlement;
            let mut totals = state.sequences.totals.get(partition).copied().unwrap_or_default();
            let new: BTreeMap<_, _> = conflicts
                .iter()
                .map(|conflict| ((conflict.stream.clone(), conflict.revision, conflict.id()), conflict))
                .filter(|(key, _)| !state.sequences.conflicts.contains_key(key))
                .collect();
            totals.conflicts += new.len() as u64;
            for StreamChange { stream, hold, unhold, .. } in steps {
                for revision in unhold {
                    let held = state.sequences.held.get(&(stream.clone(), *revision));
                    totals.events -= u64::from(held.is_some());
                    totals.bytes -= held.map_or(0, Held::bytes);
                }
                totals.events += hold.len() as u64;
                totals.bytes += hold.iter().map(Held::bytes).sum::<u64>();
            }
            if let Some(hindrance) = state.hindrance(&settlement, &totals) {
                return Ok(hindrance);
            }
            let new: Vec<_> = new.into_iter().map(|(key, conflict)| (key, conflict.clone())).collect();
            state.sequences.conflicts.extend(new);
            state.sequences.skipped.extend(skipped.clone());
            state.sequences.counts = state.sequences.counts.plus(*counts);
            state.sequences.totals.insert(*partition, totals);
            let before = state.heads().position(*partition);
            for StreamChange { stream, append, hold, unhold, waiting, .. } in steps {
                for (revision, entry) in append {
                    state.push(*partition, stream, *revision, (**entry).clone());
                }
                for revision in unhold {
                    state.sequences.held.remove(&(stream.clone(), *revision));
                }
                for held in hold {
                    state.sequences.held.insert((stream.clone(), held.revision), held.clone());
                }
                match waiting {
                    Some(waiting) => drop(state.sequences.waiting.insert(stream.clone(), waiting.clone())),
                    None => drop(state.sequences.waiting.remove(stream)),
                }
            }
            before
        };
        self.0.changed.notify_waiters();
        Ok(Settled::Applied { before })
    }

    async fn waiting(&self, after: Option<StreamId>, limit: usize) -> Result<Vec<(StreamId, StreamState)>> {
        let state = self.state();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let waiting = state.sequences.waiting.range((from, Bound::Unbounded));
        let waiting = waiting.filter(|(_, waiting)| waiting.events > 0).take(limit);
        Ok(waiting.map(|(stream, _)| (stream.clone(), state.standing(stream))).collect())
    }

    async fn overdue(&self, due: DueGaps, limit: usize) -> Result<Vec<(StreamId, StreamState)>> {
        let state = self.state();
        let is_due = |waiting: &Waiting| waiting.events > 0 && due.is(waiting);
        let mut due: Vec<_> = state.sequences.waiting.iter().filter(|(_, waiting)| is_due(waiting)).collect();
        due.sort_by_key(|(_, waiting)| waiting.since);
        due.truncate(limit);
        Ok(due.into_iter().map(|(stream, _)| (stream.clone(), state.standing(stream))).collect())
    }

    async fn conflicts(&self, after: Option<Conflict>, limit: usize) -> Result<Vec<Conflict>> {
        let state = self.state();
        let from = after.map(|after| (after.stream.clone(), after.revision, after.id()));
        let from = from.map_or(Bound::Unbounded, Bound::Excluded);
        let conflicts =
            state.sequences.conflicts.range((from, Bound::Unbounded)).map(|(_, conflict)| conflict);
        Ok(conflicts.filter(|conflict| conflict.decided.is_none()).take(limit).cloned().collect())
    }

    async fn skipped(&self, stream: &StreamId) -> Result<Vec<Skipped>> {
        let state = self.state();
        Ok(state.sequences.skipped.iter().filter(|skipped| skipped.stream == *stream).cloned().collect())
    }

    async fn reject(&self, rejected: Vec<Rejected>) -> Result<()> {
        let mut state = self.state();
        let kept = &mut state.sequences.rejected;
        let new: BTreeMap<_, _> = rejected.into_iter().map(|rejected| (rejected.id(), rejected)).collect();
        let count = new.keys().filter(|id| !kept.contains_key(*id)).count();
        if (kept.len() + count) as u64 > MAX_REJECTED {
            return Err(too_many_rejected("memory"));
        }
        for (id, rejected) in new {
            kept.entry(id).or_insert(rejected);
        }
        Ok(())
    }

    async fn rejected(&self, after: Option<String>, limit: usize) -> Result<Vec<Rejected>> {
        let state = self.state();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rejected = state.sequences.rejected.range((from, Bound::Unbounded));
        Ok(rejected.take(limit).map(|(_, rejected)| rejected.clone()).collect())
    }

    async fn count_rejected(&self) -> Result<u64> {
        Ok(self.state().sequences.rejected.len() as u64)
    }

    async fn forget(&self, rejected: &str) -> Result<bool> {
        Ok(self.state().sequences.rejected.remove(rejected).is_some())
    }

    async fn resolve(&self, conflict: &Conflict, decided: Option<Resolution>) -> Result<bool> {
        let mut state = self.state();
        let key = (conflict.stream.clone(), conflict.revision, conflict.id());
        let partition = Partition::of(&conflict.stream, state.count());
        let kept = &mut state.sequences;
        let Some(stored) = kept.conflicts.get_mut(&key).filter(|stored| stored.decided.is_none()) else {
            return Ok(false);
        };
        match decided {
            Some(decided) => stored.decided = Some(decided),
            None => drop(kept.conflicts.remove(&key)),
        }
        if let Some(totals) = kept.totals.get_mut(&partition) {
            totals.conflicts = totals.conflicts.saturating_sub(1);
        }
        Ok(true)
    }
}
