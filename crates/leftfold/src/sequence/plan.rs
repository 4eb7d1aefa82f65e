//! Planning: loads the state, in a constant number of calls, and judges.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::counts::SequencerCounts;
use super::delivery::IngestAnswer;
use super::ingest::{ByStream, Intake};
use super::judge::{Capacity, Judged, Judgement, Known, judge};
use super::sequencer::Inner;
use super::store::{Sequences, Settlement, StreamChange};
use crate::error::Result;
use crate::event::{Bookmark, EventId, Partition, Position, Revision, StreamId, to_the_microsecond};

/// The result of judging a batch in one partition.
pub(super) struct Plan {
    pub(super) settlement: Arc<Settlement>,
    judgements: Vec<(StreamId, Vec<(usize, Judgement)>)>,
    /// The counters of this batch.
    pub(super) counts: SequencerCounts,
    /// The earlier counters that are stored with it.
    pub(super) unstored: SequencerCounts,
    /// The streams that can release more events afterwards.
    pub(super) more: BTreeSet<StreamId>,
    /// The streams that deliver an event id of another stream in this batch. Their id is found to
    /// be taken once that one is settled.
    pub(super) later: BTreeSet<StreamId>,
}

impl Plan {
    /// Returns the answer to each delivery, if the new events follow this position.
    pub(super) fn answers(self, before: Position) -> Vec<(usize, IngestAnswer)> {
        let Settlement { partition, steps, .. } = &*self.settlement;
        let positions = positions(steps, before);
        let mut answers = Vec::new();
        for (stream, judgements) in self.judgements {
            let bookmark = |revision: Revision| {
                let (before, step) = positions.get(&stream)?;
                let at = step.append.binary_search_by_key(&revision, |(revision, _)| *revision).ok()?;
                let position = Position(before.0 + at as u64 + 1);
                Some(Bookmark { stream: stream.clone(), revision, partition: *partition, position })
            };
            for (number, judgement) in judgements {
                let answer = match judgement {
                    Judgement::Append(revision) => bookmark(revision).map(IngestAnswer::Appended),
                    Judgement::Repeat(revision) => bookmark(revision).map(IngestAnswer::Duplicate),
                    Judgement::Answer(answer) => Some(answer),
                };
                answers.extend(answer.map(|answer| (number, answer)));
            }
        }
        answers
    }

    /// Returns whether nothing changes.
    pub(super) fn is_empty(&self) -> bool {
        self.settlement.steps.is_empty() && self.settlement.conflicts.is_empty()
    }

    /// Returns the streams that change.
    pub(super) fn streams(&self) -> Vec<StreamId> {
        self.settlement.steps.iter().map(|step| step.stream.clone()).collect()
    }

    /// Returns the streams with deliveries that were refused because a limit is reached.
    pub(super) fn refused(&self) -> Vec<StreamId> {
        let is_full =
            |judgement: &Judgement| matches!(judgement, Judgement::Answer(answer) if !answer.is_final());
        let streams =
            self.judgements.iter().filter(|(_, judged)| judged.iter().any(|(_, judged)| is_full(judged)));
        streams.map(|(stream, _)| stream.clone()).collect()
    }
}

impl<S: Sequences + Clone> Inner<S> {
    /// Loads the state, in a constant number of calls, and judges.
    pub(super) async fn plan(
        &self,
        partition: Partition,
        Intake { policy, is_resupplied }: Intake,
        streams: &ByStream,
        taken: &BTreeSet<EventId>,
    ) -> Result<Plan> {
        let (states, kept) = self.states(partition, streams).await?;
        let mut pages = self.pages(streams, &states).await?;
        let mut found = self.find(policy, streams, &states, &pages, taken).await?;
        let mut capacity = Capacity::new(self.limits, self.store.partitions(), kept);
        let mut settlement = Settlement { partition, bounds: capacity.bounds(), ..Settlement::default() };
        let (mut judgements, mut more, mut later) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        let mut ids = HashSet::new();
        let mut counts = SequencerCounts::default();
        let now = to_the_microsecond(self.env.now());
        for (stream, deliveries) in streams {
            let mut known = Known {
                state: states.get(stream).cloned().unwrap_or_default(),
                page: pages.remove(stream),
                version: self.env.random() >> 1,
                ..Known::default()
            };
            if let Some(found) = found.get_mut(stream) {
                known.logged = std::mem::take(&mut found.logged);
                known.held = std::mem::take(&mut found.held);
                known.taken = std::mem::take(&mut found.taken);
            }
            let Judged { judgements: judged, step, conflicts, released: some, more: is_more } =
                judge(stream, policy, known, deliveries.clone(), &mut capacity, now);
            let new = || step.iter().flat_map(|step| &step.append).map(|(_, entry)| &entry.id);
            if new().any(|id| ids.contains(id)) {
                later.insert(stream.clone());
                continue;
            }
            ids.extend(new().cloned());
            let mut of_deliveries = SequencerCounts::default();
            for (_, judgement) in &judged {
                match judgement {
                    Judgement::Append(_) => of_deliveries.appended += 1,
                    Judgement::Repeat(_) => of_deliveries.duplicates += 1,
                    Judgement::Answer(answer) => of_deliveries.answered(answer),
                }
            }
            counts = counts.plus(of_deliveries);
            counts.released += some;
            // Held events may also turn out to be conflicts.
            counts.conflicts += (conflicts.len() as u64).saturating_sub(of_deliveries.conflicts);
            judgements.push((stream.clone(), judged));
            settlement.steps.extend(step);
            settlement.conflicts.extend(conflicts);
            if is_more {
                more.insert(stream.clone());
            }
        }
        counts.healed = if is_resupplied { counts.appended } else { 0 };
        let unstored = self.cache().take_unstored();
        settlement.counts = counts.plus(unstored);
        Ok(Plan { settlement: Arc::new(settlement), judgements, counts, unstored, more, later })
    }
}

/// Returns, for each stream, the position before its first event, and its step.
fn positions(steps: &[StreamChange], before: Position) -> HashMap<&StreamId, (Position, &StreamChange)> {
    let mut next = before;
    let mut positions = HashMap::with_capacity(steps.len());
    for step in steps {
        positions.insert(&step.stream, (next, step));
        next.0 += step.append.len() as u64;
    }
    positions
}
