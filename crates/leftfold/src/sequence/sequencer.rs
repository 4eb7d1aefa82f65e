//! Ingesting: loads the state, judges, and settles; retries if another process was faster.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::counts::SequencerCounts;
use super::delivery::{Delivery, HoldingLimits, IngestAnswer, Policy, Refusal};
use super::judge::{Capacity, Judged, Judgement, Known, judge};
use super::store::{
    DueGaps, Found, Held, HeldPage, Sequences, Settled, Settlement, Skipped, StreamChange, StreamState,
    Totals, Waiting, WantedEvents,
};
use crate::backoff::Backoff;
use crate::env::{Env, System};
use crate::error::{Error, Invalid, Kind, Result};
use crate::event::to_the_microsecond;
use crate::event::{Bookmark, EventId, Partition, Position, Revision, StreamId};
use crate::log::{Limit, check_entries};
use crate::mutant;

/// The maximum number of streams in the cache.
const REMEMBERED: usize = 100_000;
/// The maximum size of one release.
const RELEASE: Limit = Limit { events: 2_000, bytes: 4 << 20 };

/// Brings deliveries into the log. Cloning creates another handle.
pub struct Sequencer<S>(Arc<Inner<S>>);

impl<S> Clone for Sequencer<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Inner<S> {
    store: S,
    env: Arc<dyn Env>,
    limits: HoldingLimits,
    memory: Mutex<Memory>,
}

/// A cache of stream states. It may be outdated: the store rejects settlements from an outdated
/// state.
#[derive(Default)]
struct Memory {
    streams: HashMap<StreamId, StreamState>,
    totals: HashMap<Partition, Totals>,
    /// The counters since it was created.
    done: SequencerCounts,
    /// The part of the counters that is not stored yet, because nothing else was stored with it.
    unsaid: SequencerCounts,
}

/// The amount of deliveries that wait for missing events or for an operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SequencerStatus {
    /// The number of held events.
    pub held: u64,
    /// Their size as counted against the limits.
    pub held_bytes: u64,
    /// The stream that has waited longest.
    pub waits_longest: Option<StreamId>,
    /// The time since which it waits.
    pub waits_since: Option<Timestamp>,
    /// The number of undecided conflicts.
    pub conflicts: u64,
    /// The number of rejected messages.
    pub rejected: u64,
    /// The counters of all processes that ingest into this store. Deliveries that change nothing,
    /// such as duplicates, are counted with the next change.
    pub counts: SequencerCounts,
}

impl<S: Sequences + Clone> Sequencer<S> {
    /// Creates a sequencer in front of this store's log.
    pub fn new(store: S) -> Self {
        Self::with(store, HoldingLimits::default(), Arc::new(System))
    }

    /// Creates a sequencer with other limits, and other sources of time and randomness.
    pub fn with(store: S, limits: HoldingLimits, env: Arc<dyn Env>) -> Self {
        Self(Arc::new(Inner { store, env, limits, memory: Mutex::default() }))
    }

    /// Returns the store.
    pub fn store(&self) -> &S {
        &self.0.store
    }

    pub(super) fn now(&self) -> Timestamp {
        to_the_microsecond(self.0.env.now())
    }

    /// Returns a version for a change.
    pub(super) fn random(&self) -> u64 {
        self.0.env.random() >> 1
    }

    /// Returns the counters since it was created.
    pub fn counts(&self) -> SequencerCounts {
        self.0.memory().done
    }

    /// Returns the amount of deliveries that wait for missing events or for an operator.
    pub async fn status(&self) -> Result<SequencerStatus> {
        let store = &self.0.store;
        let survey = store.survey(Vec::new()).await?;
        let due = DueGaps { since: Timestamp::MAX, now: Timestamp::MAX, end: Timestamp::MAX };
        let oldest = store.overdue(due, 1).await?.pop();
        let oldest = oldest.and_then(|(stream, standing)| Some((stream, standing.waiting?.since)));
        let sum = |of: fn(&Totals) -> u64| survey.totals.values().map(of).sum();
        Ok(SequencerStatus {
            held: sum(|totals| totals.events),
            held_bytes: sum(|totals| totals.bytes),
            waits_longest: oldest.as_ref().map(|(stream, _)| stream.clone()),
            waits_since: oldest.map(|(_, since)| since),
            conflicts: sum(|totals| totals.conflicts),
            rejected: store.count_rejected().await?,
            counts: survey.counts,
        })
    }

    /// Ingests deliveries of any streams, in order of arrival, and returns an answer for each.
    ///
    /// When it returns, all answers are durable. If it fails, some deliveries may be stored and
    /// others not: deliver them again.
    pub async fn ingest(&self, policy: Policy, deliveries: Vec<Delivery>) -> Result<Vec<IngestAnswer>> {
        self.take(Intake { policy, heals: false }, deliveries).await
    }

    /// Ingests deliveries that a resupplier was asked for. They have revisions.
    pub(super) async fn ingest_resupplied(&self, deliveries: Vec<Delivery>) -> Result<Vec<IngestAnswer>> {
        mutant!(HealTwice => return self.take(Intake { policy: Policy::Arrival, heals: true }, deliveries).await);
        self.take(Intake { policy: Policy::Contiguous, heals: true }, deliveries).await
    }

    async fn take(&self, intake: Intake, deliveries: Vec<Delivery>) -> Result<Vec<IngestAnswer>> {
        let store = &self.0.store;
        let mut answers: Vec<Option<IngestAnswer>> = vec![None; deliveries.len()];
        let mut parts: BTreeMap<Partition, Vec<(usize, Delivery)>> = BTreeMap::new();
        for (number, delivery) in deliveries.into_iter().enumerate() {
            match check_entries(std::slice::from_ref(&*delivery.entry), store.max_event_bytes()) {
                Ok(()) => {
                    let partition = Partition::of(&delivery.stream, store.partitions());
                    parts.entry(partition).or_default().push((number, delivery));
                }
                Err(invalid) => {
                    let answer = IngestAnswer::Refused(Refusal::Invalid(invalid));
                    self.0.memory().count_unsaid(|counts| counts.answered(&answer));
                    answers[number] = Some(answer);
                }
            }
        }
        let mut under_way = JoinSet::new();
        let mut parts = parts.into_iter();
        let first = parts.next();
        for (partition, deliveries) in parts {
            let inner = Arc::clone(&self.0);
            under_way.spawn(async move { inner.ingest(partition, intake, deliveries).await });
        }
        let mut failed = None;
        let mut keep = |answered: Result<Vec<(usize, IngestAnswer)>>| match answered {
            Ok(answered) => answered.into_iter().for_each(|(number, answer)| answers[number] = Some(answer)),
            Err(error) => failed = Some(error),
        };
        if let Some((partition, deliveries)) = first {
            keep(self.0.ingest(partition, intake, deliveries).await);
        }
        while let Some(ended) = under_way.join_next().await {
            let stopped =
                |_| Error::new(Kind::Stopped, "ingesting deliveries: it was stopped; bring them again");
            keep(ended.map_err(stopped).and_then(|answered| answered));
        }
        if let Some(error) = failed {
            return Err(error);
        }
        // A missing answer would shift the answers of the following deliveries.
        answers.into_iter().collect::<Option<_>>().ok_or_else(|| {
            Error::new(
                Kind::Store,
                "ingesting deliveries: one was not answered; bring them again, and report this",
            )
        })
    }

    /// Releases the held events of a stream that no longer wait. Returns their number.
    pub async fn release(&self, stream: &StreamId) -> Result<u64> {
        let partition = Partition::of(stream, self.0.store.partitions());
        self.0.memory().streams.remove(stream);
        self.0.release(partition, BTreeSet::from([stream.clone()])).await
    }

    /// Records that the missing revisions of a stream up to this one do not exist, and releases the
    /// events that waited for them. The reason is stored. Returns the number of released events.
    ///
    /// Only missing revisions can be skipped: all before the first held event, or fewer.
    pub async fn skip(&self, stream: &StreamId, through: Revision, reason: &str) -> Result<u64> {
        let Inner { store, env, .. } = &*self.0;
        let partition = Partition::of(stream, store.partitions());
        let mut delays = Backoff::default().limit(10).delays(env.random());
        let mut is_in_doubt = false;
        loop {
            let mut survey = store.survey(vec![stream.clone()]).await?;
            let standing = survey.streams.remove(stream).unwrap_or_default();
            let seen = standing.seen();
            let after = standing.after();
            if is_in_doubt && through <= after {
                return self.release(stream).await;
            }
            let waiting = standing.waiting.filter(|waiting| waiting.events > 0).ok_or_else(|| {
                Invalid::new(
                    "stream",
                    stream.as_str(),
                    "one of which events are held; this one waits for nothing",
                )
            })?;
            if through <= after || through > waiting.until {
                let expected = format!("one that is waited for: {} to {}", after.0 + 1, waiting.until);
                return Err(Invalid::new("revision", &through.to_string(), expected).into());
            }
            let at = to_the_microsecond(env.now());
            let waiting = Waiting {
                version: env.random() >> 1,
                skipped: through,
                since: at,
                ask_at: at,
                asked: 0,
                trouble: None,
                ..waiting
            };
            let step = StreamChange {
                stream: stream.clone(),
                seen,
                append: Vec::new(),
                hold: Vec::new(),
                unhold: Vec::new(),
                waiting: Some(waiting),
            };
            let (stream, reason) = (stream.clone(), reason.to_owned());
            let settlement = Settlement {
                partition,
                steps: vec![step],
                skipped: Some(Skipped { stream: stream.clone(), after, through, reason, at }),
                bounds: Totals { events: u64::MAX, bytes: u64::MAX, conflicts: u64::MAX },
                ..Settlement::default()
            };
            let failure = match store.settle(Arc::new(settlement)).await? {
                Settled::Applied { .. } => return self.release(&stream).await,
                Settled::Unknown(error) => {
                    is_in_doubt = true;
                    error
                }
                _ => Error::new(
                    Kind::Unavailable,
                    format!("skipping revisions of {stream}: others keep changing it"),
                ),
            };
            let Some(delay) = delays.next() else { return Err(failure) };
            sleep(delay).await;
        }
    }
}

/// The way in which deliveries are ingested.
#[derive(Clone, Copy)]
struct Intake {
    policy: Policy,
    /// `true` if the deliveries were requested.
    heals: bool,
}

impl Memory {
    fn count_unsaid(&mut self, count: impl FnOnce(&mut SequencerCounts)) {
        let mut counts = SequencerCounts::default();
        count(&mut counts);
        self.done = self.done.plus(counts);
        self.unsaid = self.unsaid.plus(counts);
    }
}

/// The result of judging a batch in one partition.
struct Plan {
    settlement: Arc<Settlement>,
    judgements: Vec<(StreamId, Vec<(usize, Judgement)>)>,
    /// The counters of this batch.
    counts: SequencerCounts,
    /// The earlier counters that are stored with it.
    unsaid: SequencerCounts,
    /// The streams that can release more events afterwards.
    more: BTreeSet<StreamId>,
    /// The streams that deliver an event id of another stream in this batch. Their id is found to
    /// be taken once that one is settled.
    later: BTreeSet<StreamId>,
}

impl Plan {
    /// Returns the answer to each delivery, if the new events follow this position.
    fn answers(self, before: Position) -> Vec<(usize, IngestAnswer)> {
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

    /// Returns the streams with deliveries that were refused for lack of room.
    fn refused(&self) -> Vec<StreamId> {
        let is_full =
            |judgement: &Judgement| matches!(judgement, Judgement::Answer(answer) if !answer.is_final());
        let streams =
            self.judgements.iter().filter(|(_, judged)| judged.iter().any(|(_, judged)| is_full(judged)));
        streams.map(|(stream, _)| stream.clone()).collect()
    }
}

impl<S: Sequences + Clone> Inner<S> {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ingests deliveries of one partition.
    async fn ingest(
        &self,
        partition: Partition,
        intake: Intake,
        deliveries: Vec<(usize, Delivery)>,
    ) -> Result<Vec<(usize, IngestAnswer)>> {
        let mut streams: BTreeMap<StreamId, Vec<(usize, Delivery)>> = BTreeMap::new();
        for (number, delivery) in deliveries {
            streams.entry(delivery.stream.clone()).or_default().push((number, delivery));
        }
        let mut answers = Vec::new();
        let mut more = BTreeSet::new();
        while !streams.is_empty() {
            let (plan, before) = self.settle(partition, intake, &streams).await?;
            streams.retain(|stream, _| plan.later.contains(stream));
            more.extend(plan.more.iter().cloned());
            answers.extend(plan.answers(before));
        }
        self.release(partition, more).await?;
        Ok(answers)
    }

    /// Releases held events of streams, page by page.
    async fn release(&self, partition: Partition, mut streams: BTreeSet<StreamId>) -> Result<u64> {
        let mut released = 0;
        while !streams.is_empty() {
            let none = streams.into_iter().map(|stream| (stream, Vec::new())).collect();
            let intake = Intake { policy: Policy::Contiguous, heals: false };
            let (plan, _) = self.settle(partition, intake, &none).await?;
            released += plan.counts.released;
            // If nothing changed, there is no room for conflicts: these events stay held until
            // there is.
            streams = plan.settlement.steps.iter().map(|step| step.stream.clone()).collect();
            streams.retain(|stream| plan.more.contains(stream));
            streams.extend(plan.later);
        }
        Ok(released)
    }

    /// Plans and settles until it succeeds. Returns the plan, and the position before the first new
    /// event.
    async fn settle(
        &self,
        partition: Partition,
        intake: Intake,
        streams: &BTreeMap<StreamId, Vec<(usize, Delivery)>>,
    ) -> Result<(Plan, Position)> {
        let backoff = Backoff::default().first(Duration::from_millis(1)).most(Duration::from_millis(200));
        let mut delays = backoff.limit(20).delays(self.env.random());
        let mut taken = BTreeSet::new();
        loop {
            let plan = self.plan(partition, intake, streams, &taken).await?;
            let Settlement { steps, conflicts, .. } = &*plan.settlement;
            let forget = |moved: Vec<StreamId>| {
                mutant!(KeepAfterMove => return);
                let mut memory = self.memory();
                memory.totals.remove(&partition);
                for stream in &moved {
                    memory.streams.remove(stream);
                }
            };
            let all = || steps.iter().map(|step| step.stream.clone()).collect();
            // The store does not check a refusal: the cached state behind it may be wrong and must
            // not stay.
            let refused = plan.refused();
            if !refused.is_empty() {
                forget(refused);
            }
            if steps.is_empty() && conflicts.is_empty() {
                let mut memory = self.memory();
                memory.unsaid = memory.unsaid.plus(plan.unsaid);
                memory.count_unsaid(|counts| *counts = plan.counts);
                drop(memory);
                return Ok((plan, Position(0)));
            }
            let settled = self.store.settle(Arc::clone(&plan.settlement)).await;
            if !matches!(settled, Ok(Settled::Applied { .. })) {
                let mut memory = self.memory();
                memory.unsaid = memory.unsaid.plus(plan.unsaid);
            }
            let failure = match settled {
                Ok(Settled::Applied { before }) => {
                    self.remember(&plan);
                    return Ok((plan, before));
                }
                Ok(Settled::Moved(moved)) => {
                    forget(moved);
                    Error::new(
                        Kind::Unavailable,
                        "ingesting deliveries: others keep changing the same streams",
                    )
                }
                Ok(Settled::Taken(ids)) => {
                    forget(all());
                    taken.extend(ids);
                    Error::new(
                        Kind::Unavailable,
                        "ingesting deliveries: others keep appending the same events",
                    )
                }
                Ok(Settled::Full) => {
                    forget(all());
                    Error::new(Kind::Full, "ingesting deliveries: others keep filling what there is of room")
                }
                Ok(Settled::Unknown(error)) => {
                    forget(all());
                    error
                }
                Err(error) => {
                    forget(all());
                    return Err(error);
                }
            };
            let Some(delay) = delays.next() else { return Err(failure) };
            sleep(delay).await;
        }
    }

    /// Loads the state, in a constant number of calls, and judges.
    async fn plan(
        &self,
        partition: Partition,
        Intake { policy, heals }: Intake,
        streams: &BTreeMap<StreamId, Vec<(usize, Delivery)>>,
        taken: &BTreeSet<EventId>,
    ) -> Result<Plan> {
        let (standings, kept) = self.standings(partition, streams).await?;
        let mut pages = self.pages(streams, &standings).await?;
        let mut found = self.find(policy, streams, &standings, &pages, taken).await?;
        let mut capacity = Capacity::new(self.limits, self.store.partitions(), kept);
        let mut settlement = Settlement { partition, bounds: capacity.bounds(), ..Settlement::default() };
        let (mut judgements, mut more, mut later) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        let mut ids = HashSet::new();
        let mut counts = SequencerCounts::default();
        let now = to_the_microsecond(self.env.now());
        for (stream, deliveries) in streams {
            let mut known = Known {
                state: standings.get(stream).cloned().unwrap_or_default(),
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
        counts.healed = if heals { counts.appended } else { 0 };
        let unsaid = std::mem::take(&mut self.memory().unsaid);
        settlement.counts = counts.plus(unsaid);
        Ok(Plan { settlement: Arc::new(settlement), judgements, counts, unsaid, more, later })
    }

    /// Returns the states of streams, and the totals of their partition.
    async fn standings(
        &self,
        partition: Partition,
        streams: &BTreeMap<StreamId, Vec<(usize, Delivery)>>,
    ) -> Result<(HashMap<StreamId, StreamState>, Totals)> {
        let mut standings = HashMap::with_capacity(streams.len());
        let (unknown, kept) = {
            let memory = self.memory();
            for stream in streams.keys() {
                if let Some(standing) = memory.streams.get(stream) {
                    standings.insert(stream.clone(), standing.clone());
                }
            }
            let unknown = streams.keys().filter(|stream| !standings.contains_key(*stream));
            (unknown.cloned().collect::<Vec<_>>(), memory.totals.get(&partition).copied())
        };
        if let (Some(kept), []) = (kept, &unknown[..]) {
            return Ok((standings, kept));
        }
        let survey = self.store.survey(unknown).await?;
        let kept = survey.totals.get(&partition).copied().unwrap_or_default();
        let mut memory = self.memory();
        if memory.streams.len() > REMEMBERED {
            memory.streams.clear();
        }
        memory.totals.insert(partition, kept);
        for (stream, standing) in survey.streams {
            memory.streams.insert(stream.clone(), standing.clone());
            standings.insert(stream, standing);
        }
        Ok((standings, kept))
    }

    /// Returns the held events of streams that might release some of them.
    async fn pages(
        &self,
        streams: &BTreeMap<StreamId, Vec<(usize, Delivery)>>,
        standings: &HashMap<StreamId, StreamState>,
    ) -> Result<BTreeMap<StreamId, HeldPage>> {
        let may_release = |(stream, deliveries): &(&StreamId, &Vec<(usize, Delivery)>)| {
            let waiting = standings.get(*stream).and_then(|standing| standing.waiting.as_ref());
            let Some(waiting) = waiting.filter(|waiting| waiting.events > 0) else { return false };
            let lowest = deliveries.iter().filter_map(|(_, delivery)| delivery.revision).min();
            lowest.is_none_or(|lowest| lowest <= waiting.first)
        };
        let waiting: Vec<_> = streams.iter().filter(may_release).map(|(stream, _)| stream.clone()).collect();
        if waiting.is_empty() {
            return Ok(BTreeMap::new());
        }
        self.store.held(waiting, RELEASE).await
    }

    /// Finds stored events that match deliveries or held events.
    async fn find(
        &self,
        policy: Policy,
        streams: &BTreeMap<StreamId, Vec<(usize, Delivery)>>,
        standings: &HashMap<StreamId, StreamState>,
        pages: &BTreeMap<StreamId, HeldPage>,
        taken: &BTreeSet<EventId>,
    ) -> Result<HashMap<StreamId, Known>> {
        let mut wanted = WantedEvents { places: Vec::new(), ids: taken.iter().cloned().collect() };
        for (stream, deliveries) in streams {
            let Some(standing) = standings.get(stream) else { continue };
            let is_waiting = standing.waiting.as_ref().is_some_and(|waiting| waiting.events > 0);
            let coming = deliveries.iter().filter_map(|(_, delivery)| delivery.revision);
            let coming = coming.filter(|revision| is_waiting || *revision <= standing.after());
            let held = pages.get(stream).into_iter().flat_map(|page| &page.held).map(|held| held.revision);
            let held = held.filter(|revision| *revision <= standing.after());
            if policy != Policy::Arrival {
                wanted.places.extend(coming.chain(held).map(|revision| (stream.clone(), revision)));
            }
        }
        let mut known: HashMap<StreamId, Known> = HashMap::new();
        if wanted.is_empty() {
            return Ok(known);
        }
        let Found { logged, held } = self.store.find(wanted).await?;
        for event in logged.iter().filter(|event| taken.contains(&event.id)) {
            for (stream, deliveries) in streams {
                let held =
                    pages.get(stream).into_iter().flat_map(|page| &page.held).map(|held| &held.entry.id);
                if deliveries
                    .iter()
                    .map(|(_, delivery)| &delivery.entry.id)
                    .chain(held)
                    .any(|id| *id == event.id)
                {
                    known.entry(stream.clone()).or_default().taken.insert(event.id.clone(), event.clone());
                }
            }
        }
        for event in logged {
            known.entry(event.stream.clone()).or_default().logged.insert(event.revision, event);
        }
        for held in held {
            known.entry(held.stream.clone()).or_default().held.insert(held.revision, held);
        }
        Ok(known)
    }

    /// Updates the cache after a settlement.
    fn remember(&self, plan: &Plan) {
        let mut memory = self.memory();
        memory.done = memory.done.plus(plan.counts);
        let Settlement { partition, steps, conflicts, .. } = &*plan.settlement;
        if !conflicts.is_empty() {
            // A conflict that was already kept does not count twice.
            memory.totals.remove(partition);
        }
        for StreamChange { stream, append, hold, unhold, waiting, .. } in steps {
            if !unhold.is_empty() {
                memory.totals.remove(partition);
            } else if let Some(totals) = memory.totals.get_mut(partition) {
                totals.events += hold.len() as u64;
                totals.bytes += hold.iter().map(Held::bytes).sum::<u64>();
            }
            if let Some(standing) = memory.streams.get_mut(stream) {
                if let Some((last, _)) = append.last() {
                    standing.last = *last;
                }
                standing.waiting.clone_from(waiting);
            }
        }
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
