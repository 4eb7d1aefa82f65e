//! The state of a stream while its deliveries are judged, and the outcomes of a delivery.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::capacity::Capacity;
use super::decide::{Judged, Judgement};
use crate::event::{Event, EventId, Revision, StreamId};
use crate::log::Entry;
use crate::mutant;
use crate::sequence::delivery::{IngestAnswer, Policy, Refusal};
use crate::sequence::store::{Conflict, ConflictReason, Held, StreamState, held_bytes};

/// The time after which to deliver again what did not fit into the limits.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// A stream as its deliveries are judged: the stored state, and the changes so far.
pub(super) struct StreamJudge<'a> {
    pub(super) stream: &'a StreamId,
    pub(super) policy: Policy,
    /// The revision up to which all is logged, appended or skipped.
    pub(super) after: Revision,
    /// The revision from which on the held events are unknown.
    pub(super) end: Option<Revision>,
    /// The number and the size of the stream's held events.
    pub(super) events: u64,
    pub(super) bytes: u64,
    /// The lowest held events, as far as they were read and not released.
    pub(super) page: VecDeque<Held>,
    pub(super) state: &'a StreamState,
    pub(super) logged: &'a HashMap<Revision, Event>,
    pub(super) held: &'a HashMap<Revision, Held>,
    pub(super) taken: &'a HashMap<EventId, Event>,
    pub(super) capacity: &'a mut Capacity,
    pub(super) now: Timestamp,
    pub(super) append: Vec<(Revision, Arc<Entry>)>,
    /// The ids of the appended events.
    pub(super) ids: HashMap<EventId, Revision>,
    pub(super) hold: Vec<Held>,
    pub(super) unhold: Vec<Revision>,
    pub(super) judged: Judged,
}

impl StreamJudge<'_> {
    /// Returns whether all held events up to this revision were read.
    pub(super) fn has_read(&self, revision: Revision) -> bool {
        self.end.is_none_or(|end| revision < end)
    }

    /// Appends an event that follows the stream.
    pub(super) fn append_next(&mut self, revision: Revision, entry: Arc<Entry>) {
        self.after = revision;
        self.ids.insert(entry.id.clone(), revision);
        self.append.push((revision, entry));
    }

    /// Holds an early delivery if it fits into the limits.
    pub(super) fn hold_early(
        &mut self,
        number: usize,
        revision: Revision,
        previous: Revision,
        entry: Arc<Entry>,
    ) {
        let size = held_bytes(&entry);
        match self.capacity.hold((self.events, self.bytes), size) {
            Ok(()) => {
                self.events += 1;
                self.bytes += size;
                let (stream, since) = (self.stream.clone(), self.now);
                self.hold.push(Held { stream, revision, previous, since, entry });
                self.answer(number, self.held_answer());
            }
            Err(limit) => self.refuse(number, limit),
        }
    }

    /// Keeps a delivery as a conflict if it fits into the limits.
    pub(super) fn dispute(
        &mut self,
        number: usize,
        revision: Revision,
        entry: Arc<Entry>,
        why: ConflictReason,
    ) {
        match self.capacity.dispute() {
            Ok(()) => {
                let (stream, since) = (self.stream.clone(), self.now);
                let conflict = Conflict { stream, revision, why: why.clone(), since, entry, decided: None };
                self.judged.conflicts.push(conflict);
                self.answer(number, IngestAnswer::Conflict(why));
            }
            Err(limit) => self.refuse(number, limit),
        }
    }

    fn refuse(&mut self, number: usize, limit: &'static str) {
        let refusal = Refusal::Full { bound: limit, retry_after: RETRY_AFTER };
        self.answer(number, IngestAnswer::Refused(refusal));
    }

    pub(super) fn answer(&mut self, number: usize, answer: IngestAnswer) {
        self.judged.judgements.push((number, Judgement::Answer(answer)));
    }

    pub(super) fn held_answer(&self) -> IngestAnswer {
        IngestAnswer::Held { waiting_for: Revision(self.after.0 + 1) }
    }

    /// Returns why an event can't have a revision that the stream has passed.
    pub(super) fn why_not(&self, revision: Revision, found: Option<&Event>) -> ConflictReason {
        let skipped = self.state.waiting.as_ref().map_or(Revision(0), |waiting| waiting.skipped);
        match found {
            Some(_) => ConflictReason::Logged,
            None if revision <= skipped => ConflictReason::Skipped,
            None => ConflictReason::Link,
        }
    }
}

/// Returns whether two events have the same type and data. The time and way of delivery may differ.
pub(super) fn same_content(a: &Entry, b: &Entry) -> bool {
    mutant!(ContentIgnored => return true);
    a.kind == b.kind && a.data.same_as(&b.data)
}

/// Returns whether a stored event has the same type and data.
pub(super) fn is_same(entry: &Entry, event: &Event) -> bool {
    mutant!(ContentIgnored => return true);
    entry.kind == event.kind && entry.data.same_as(&event.data)
}
