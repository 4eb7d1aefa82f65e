//! The decision: a pure function from the deliveries and the known state of a stream to its
//! changes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::super::delivery::{Delivery, HoldingLimits, IngestAnswer, Policy, Refusal};
use super::super::store::{
    Conflict, ConflictReason, Held, HeldPage, StreamChange, StreamState, Totals, Waiting, bytes,
};
use crate::error::Invalid;
use crate::event::{Event, EventId, Revision, StreamId};
use crate::log::Entry;
use crate::mutant;

/// The time after which to retry a delivery for which there was no room.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The known state of a stream.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The state of the stream.
    pub standing: StreamState,
    /// The logged events at revisions that are delivered or held again.
    pub logged: HashMap<Revision, Event>,
    /// The held events at revisions that are delivered.
    pub held: HashMap<Revision, Held>,
    /// The lowest held events, if some of them might be released.
    pub page: Option<HeldPage>,
    /// The logged events, of any stream, whose ids are delivered or held.
    pub taken: HashMap<EventId, Event>,
    /// The version of the next change: a random number.
    pub version: u64,
}

/// The room left for held events and conflicts.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    limits: HoldingLimits,
    /// The current totals of the partition.
    kept: Totals,
    bounds: Totals,
}

impl Room {
    /// Creates the room of one partition out of `partitions`. `kept` is the part in use.
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

    /// Reserves room for a held event. The pair is the number and the size of the stream's held
    /// events. The error is the limit that is reached.
    fn hold(&mut self, (events, all): (u64, u64), bytes: u64) -> Result<(), &'static str> {
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

    fn unhold(&mut self, bytes: u64) {
        self.kept.events = self.kept.events.saturating_sub(1);
        self.kept.bytes = self.kept.bytes.saturating_sub(bytes);
    }

    fn dispute(&mut self) -> Result<(), &'static str> {
        if self.kept.conflicts >= self.bounds.conflicts {
            return Err("the number of conflicts");
        }
        self.kept.conflicts += 1;
        Ok(())
    }
}

/// The decision about a delivery, valid once the step is settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Append it at this revision.
    Append(Revision),
    /// It duplicates an event that is appended or released with it, at this revision.
    Repeat(Revision),
    /// Answer it, without appending.
    Answer(IngestAnswer),
}

/// The decisions about the deliveries of a stream.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// The decision about each delivery, by the number of the delivery.
    pub judgements: Vec<(usize, Judgement)>,
    /// The change of the stream, if there is one.
    pub step: Option<StreamChange>,
    /// The new conflicts.
    pub conflicts: Vec<Conflict>,
    /// The number of held events that were released.
    pub released: u64,
    /// `true` if more held events may be released once this is settled.
    pub more: bool,
}

/// Decides about deliveries of one stream, each with a number of the caller's. Without deliveries
/// it releases the held events that no longer wait.
///
/// The log ends up the same for any order and any repetition of deliveries.
pub fn judge(
    stream: &StreamId,
    policy: Policy,
    known: Known,
    deliveries: Vec<(usize, Delivery)>,
    room: &mut Room,
    now: Timestamp,
) -> Judged {
    let Known { standing, logged, held, page, taken, version } = known;
    let is_whole = page.as_ref().is_none_or(|page| !page.more);
    let has_page = page.is_some();
    let page = page.map_or_else(Vec::new, |page| page.held);
    let mut line = Line {
        stream,
        policy,
        after: standing.after(),
        // The last event of a cut page only tells where to continue, and stays held.
        end: if is_whole { None } else { page.last().map(|held| held.revision) },
        events: standing.waiting.as_ref().map_or(0, |waiting| waiting.events),
        bytes: standing.waiting.as_ref().map_or(0, |waiting| waiting.bytes),
        page: page.into(),
        standing: &standing,
        logged: &logged,
        held: &held,
        taken: &taken,
        room,
        now,
        append: Vec::new(),
        ids: HashMap::new(),
        hold: Vec::new(),
        unhold: Vec::new(),
        judged: Judged::default(),
    };
    match policy {
        Policy::Arrival => line.arrive(deliveries),
        Policy::Contiguous | Policy::Latest => line.take(deliveries),
    }
    line.finish(has_page, version)
}

/// The queue before the end of a stream in the log.
struct Line<'a> {
    stream: &'a StreamId,
    policy: Policy,
    /// The revision up to which all is logged, appended or skipped.
    after: Revision,
    /// The revision from which on the held events are unknown.
    end: Option<Revision>,
    /// The number and the size of the stream's held events.
    events: u64,
    bytes: u64,
    page: VecDeque<Held>,
    standing: &'a StreamState,
    logged: &'a HashMap<Revision, Event>,
    held: &'a HashMap<Revision, Held>,
    taken: &'a HashMap<EventId, Event>,
    room: &'a mut Room,
    now: Timestamp,
    append: Vec<(Revision, Arc<Entry>)>,
    /// The ids of the appended events.
    ids: HashMap<EventId, Revision>,
    hold: Vec<Held>,
    unhold: Vec<Revision>,
    judged: Judged,
}

impl Line<'_> {
    /// Assigns revisions in order of arrival.
    fn arrive(&mut self, deliveries: Vec<(usize, Delivery)>) {
        let mut arrived: HashMap<EventId, (Revision, usize)> = HashMap::new();
        for (number, Delivery { entry, .. }) in deliveries {
            if let Some(event) = self.taken.get(&entry.id) {
                let is_here = event.stream == *self.stream && is_same(&entry, event);
                if is_here {
                    self.answer(number, IngestAnswer::Duplicate(event.bookmark()));
                } else {
                    let why =
                        ConflictReason::IdTaken { stream: event.stream.clone(), revision: event.revision };
                    self.dispute(number, Revision(self.after.0 + 1), entry, why);
                }
            } else if let Some((revision, at)) = arrived.get(&entry.id).copied() {
                if same_content(&entry, &self.append[at].1) {
                    self.judged.judgements.push((number, Judgement::Repeat(revision)));
                } else {
                    let why = ConflictReason::IdTaken { stream: self.stream.clone(), revision };
                    self.dispute(number, Revision(self.after.0 + 1), entry, why);
                }
            } else {
                self.after.0 += 1;
                arrived.insert(entry.id.clone(), (self.after, self.append.len()));
                self.judged.judgements.push((number, Judgement::Append(self.after)));
                self.append.push((self.after, entry));
            }
        }
    }

    /// Places deliveries by revision, and releases held events between them.
    fn take(&mut self, deliveries: Vec<(usize, Delivery)>) {
        let mut incoming: BTreeMap<Revision, Vec<(usize, Revision, Arc<Entry>)>> = BTreeMap::new();
        for (number, delivery) in deliveries {
            match self.checked(&delivery) {
                Ok((revision, previous)) => {
                    incoming.entry(revision).or_default().push((number, previous, delivery.entry));
                }
                Err(invalid) => self.answer(number, IngestAnswer::Refused(Refusal::Invalid(invalid))),
            }
        }
        for (revision, twins) in incoming {
            self.release(Some(revision));
            for (number, previous, entry) in twins {
                self.place(number, revision, previous, entry);
            }
        }
        self.release(None);
    }

    /// Returns the revision and the previous one. Fails if they are invalid.
    fn checked(&self, delivery: &Delivery) -> Result<(Revision, Revision), Invalid> {
        let Some(revision) = delivery.revision else {
            let expected = "one for every event of this feed; without, use the policy arrival";
            return Err(Invalid::new("revision", "", expected));
        };
        if revision.0 == 0 || i64::try_from(revision.0).is_err() {
            let expected = format!("a number from 1 to {}", i64::MAX);
            return Err(Invalid::new("revision", &revision.to_string(), expected));
        }
        match delivery.previous {
            Some(previous) if previous >= revision => {
                let expected = format!("a revision below {revision}, that of the event");
                Err(Invalid::new("previous revision", &previous.to_string(), expected))
            }
            Some(previous) if self.policy == Policy::Contiguous => Ok((revision, previous)),
            _ => Ok((revision, Revision(revision.0 - 1))),
        }
    }

    /// Releases held events below a revision, or all that no longer wait. Also removes held events
    /// that are in the log by now, or conflict with it.
    fn release(&mut self, below: Option<Revision>) {
        while let Some(held) = self.page.front() {
            let is_wanted = below.is_none_or(|below| held.revision < below)
                && self.end.is_none_or(|end| held.revision < end);
            if !is_wanted || (held.previous > self.after && held.revision > self.after) {
                return;
            }
            let why = self.contradicts(held);
            if why.is_some() && self.room.dispute().is_err() {
                return;
            }
            let Some(Held { stream, revision, since, entry, .. }) = self.page.pop_front() else { return };
            let bytes = bytes(&entry);
            self.unhold.push(revision);
            self.room.unhold(bytes);
            self.events = self.events.saturating_sub(1);
            self.bytes = self.bytes.saturating_sub(bytes);
            if let Some(why) = why {
                self.judged.conflicts.push(Conflict { stream, revision, why, since, entry, decided: None });
            } else if revision > self.after {
                self.append(revision, entry);
                self.judged.released += 1;
            }
        }
    }

    /// Returns why a held event that no longer waits can't be appended. Returns `None` if it can,
    /// or is in the log already.
    fn contradicts(&self, held: &Held) -> Option<ConflictReason> {
        let Held { revision, previous, entry, .. } = held;
        if *revision <= self.after {
            return match self.logged.get(revision) {
                Some(event) if is_same(entry, event) => None,
                found => Some(self.why_not(*revision, found)),
            };
        }
        if let Some(event) = self.taken.get(&entry.id) {
            return Some(ConflictReason::IdTaken { stream: event.stream.clone(), revision: event.revision });
        }
        if let Some(revision) = self.ids.get(&entry.id) {
            return Some(ConflictReason::IdTaken { stream: self.stream.clone(), revision: *revision });
        }
        (*previous < self.after).then_some(ConflictReason::Link)
    }

    /// Decides about one delivery.
    fn place(&mut self, number: usize, revision: Revision, previous: Revision, entry: Arc<Entry>) {
        if let Some(event) = self.taken.get(&entry.id)
            && (event.stream != *self.stream || event.revision != revision)
        {
            let why = ConflictReason::IdTaken { stream: event.stream.clone(), revision: event.revision };
            return self.dispute(number, revision, entry, why);
        }
        // Compare with deliveries of the same batch.
        if let Some((_, other)) = self.append.last().filter(|(other, _)| *other == revision) {
            return if same_content(&entry, other) {
                self.judged.judgements.push((number, Judgement::Repeat(revision)));
            } else {
                self.dispute(number, revision, entry, ConflictReason::Logged);
            };
        }
        if let Some(other) = self.hold.last().filter(|other| other.revision == revision) {
            return if same_content(&entry, &other.entry) {
                self.answer(number, self.is_held());
            } else {
                self.dispute(number, revision, entry, ConflictReason::Held);
            };
        }
        if revision <= self.after {
            return match self.logged.get(&revision) {
                Some(event) if is_same(&entry, event) => {
                    self.answer(number, IngestAnswer::Duplicate(event.bookmark()));
                }
                None if self.policy == Policy::Latest => {
                    self.answer(number, IngestAnswer::Stale { last: self.after });
                }
                found => {
                    let why = self.why_not(revision, found);
                    self.dispute(number, revision, entry, why);
                }
            };
        }
        // A held event came first.
        let is_next = self.page.front().is_some_and(|held| held.revision == revision);
        let held = if is_next { self.page.front() } else { self.held.get(&revision) };
        if let Some(held) = held {
            let is_same = same_content(&entry, &held.entry);
            if is_next && self.end.is_none_or(|end| revision < end) && held.previous <= self.after {
                self.release(Some(Revision(revision.0 + 1)));
            }
            return if !is_same {
                self.dispute(number, revision, entry, ConflictReason::Held);
            } else if self.append.last().is_some_and(|(last, _)| *last == revision) {
                self.judged.judgements.push((number, Judgement::Repeat(revision)));
            } else {
                self.answer(number, self.is_held());
            };
        }
        if self.follows(revision, previous) {
            if let Some(other) = self.ids.get(&entry.id).copied() {
                let why = ConflictReason::IdTaken { stream: self.stream.clone(), revision: other };
                return self.dispute(number, revision, entry, why);
            }
            self.append(revision, entry);
            self.judged.judgements.push((number, Judgement::Append(revision)));
        } else if previous < self.after {
            self.dispute(number, revision, entry, ConflictReason::Link);
        } else {
            self.keep(number, revision, previous, entry);
        }
    }

    /// Returns whether an event above the stream's last one can be appended next.
    fn follows(&self, revision: Revision, previous: Revision) -> bool {
        if self.policy == Policy::Latest {
            return true;
        }
        if self.end.is_some_and(|end| revision >= end) {
            return false;
        }
        mutant!(LinkTooFar => return previous == self.after || previous.0 == self.after.0 + 1);
        previous == self.after
    }

    fn append(&mut self, revision: Revision, entry: Arc<Entry>) {
        self.after = revision;
        self.ids.insert(entry.id.clone(), revision);
        self.append.push((revision, entry));
    }

    /// Holds a delivery if there is room.
    fn keep(&mut self, number: usize, revision: Revision, previous: Revision, entry: Arc<Entry>) {
        let size = bytes(&entry);
        match self.room.hold((self.events, self.bytes), size) {
            Ok(()) => {
                self.events += 1;
                self.bytes += size;
                let (stream, since) = (self.stream.clone(), self.now);
                self.hold.push(Held { stream, revision, previous, since, entry });
                self.answer(number, self.is_held());
            }
            Err(bound) => self.refuse(number, bound),
        }
    }

    /// Keeps a delivery as a conflict if there is room.
    fn dispute(&mut self, number: usize, revision: Revision, entry: Arc<Entry>, why: ConflictReason) {
        match self.room.dispute() {
            Ok(()) => {
                let (stream, since) = (self.stream.clone(), self.now);
                let conflict = Conflict { stream, revision, why: why.clone(), since, entry, decided: None };
                self.judged.conflicts.push(conflict);
                self.answer(number, IngestAnswer::Conflict(why));
            }
            Err(bound) => self.refuse(number, bound),
        }
    }

    fn refuse(&mut self, number: usize, bound: &'static str) {
        let refusal = Refusal::Full { bound, retry_after: RETRY_AFTER };
        self.answer(number, IngestAnswer::Refused(refusal));
    }

    fn answer(&mut self, number: usize, answer: IngestAnswer) {
        self.judged.judgements.push((number, Judgement::Answer(answer)));
    }

    fn is_held(&self) -> IngestAnswer {
        IngestAnswer::Held { waiting_for: Revision(self.after.0 + 1) }
    }

    /// Returns why an event can't have a revision that the stream has passed.
    fn why_not(&self, revision: Revision, found: Option<&Event>) -> ConflictReason {
        let skipped = self.standing.waiting.as_ref().map_or(Revision(0), |waiting| waiting.skipped);
        match found {
            Some(_) => ConflictReason::Logged,
            None if revision <= skipped => ConflictReason::Skipped,
            None => ConflictReason::Link,
        }
    }

    fn finish(mut self, has_page: bool, version: u64) -> Judged {
        let next = self.page.front().map(|held| (held.revision, held.previous));
        let kept = self.standing.waiting.as_ref();
        let next = if has_page {
            next
        } else {
            kept.filter(|kept| kept.events > 0).map(|kept| (kept.first, kept.until))
        };
        let first =
            next.into_iter().chain(self.hold.first().map(|held| (held.revision, held.previous))).min();
        // Every held delivery reports the revision that the stream waits for after the whole batch.
        let waiting_for = Revision(self.after.0 + 1);
        for (_, judgement) in &mut self.judged.judgements {
            if let Judgement::Answer(IngestAnswer::Held { waiting_for: wanted }) = judgement {
                *wanted = waiting_for;
            }
        }
        let last = self.append.last().map_or(self.standing.last, |(last, _)| *last);
        let skipped = kept.map_or(Revision(0), |kept| kept.skipped);
        let waiting = match first {
            Some((first, until)) => {
                let since = kept.filter(|kept| kept.events > 0 && self.after == self.standing.after());
                let highest = self.hold.last().map_or(first, |held| held.revision);
                Some(Waiting {
                    version,
                    skipped: if skipped > last { skipped } else { Revision(0) },
                    events: self.events,
                    bytes: self.bytes,
                    first,
                    until,
                    highest: highest.max(kept.map_or(Revision(0), |kept| kept.highest)),
                    since: since.map_or(self.now, |kept| kept.since),
                    ask_at: since.map_or(self.now, |kept| kept.ask_at),
                    asked: since.map_or(0, |kept| kept.asked),
                    trouble: since.and_then(|kept| kept.trouble.clone()),
                })
            }
            None => kept.filter(|kept| kept.skipped > last).map(|kept| Waiting {
                version,
                events: 0,
                bytes: 0,
                ..kept.clone()
            }),
        };
        self.judged.more = waiting.as_ref().is_some_and(|waiting| {
            waiting.events > 0 && (waiting.until <= self.after || waiting.first <= self.after)
        });
        if !self.append.is_empty() || !self.hold.is_empty() || !self.unhold.is_empty() {
            self.judged.step = Some(StreamChange {
                stream: self.stream.clone(),
                seen: self.standing.seen(),
                append: self.append,
                hold: self.hold,
                unhold: self.unhold,
                waiting,
            });
        }
        self.judged
    }
}

/// Returns whether two events have the same type and data. The time and way of delivery may differ.
fn same_content(a: &Entry, b: &Entry) -> bool {
    mutant!(ContentIgnored => return true);
    a.kind == b.kind && a.data.same_as(&b.data)
}

fn is_same(entry: &Entry, event: &Event) -> bool {
    mutant!(ContentIgnored => return true);
    entry.kind == event.kind && entry.data.same_as(&event.data)
}
