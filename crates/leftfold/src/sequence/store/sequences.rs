//! The sequencer's state in a store, beside the log: held events, the gaps of their streams, and
//! conflicts.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::counts::SequencerCounts;
use crate::error::{Error, Result};
use crate::event::{Event, EventId, Partition, Position, Revision, StreamId};
use crate::log::{Append, Entry, Limit};

/// An event that arrived before its predecessor.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// Its stream.
    pub stream: StreamId,
    /// Its revision.
    pub revision: Revision,
    /// The revision that must be in the log before it.
    pub previous: Revision,
    /// The time at which it arrived.
    pub since: Timestamp,
    /// The event itself.
    pub entry: Arc<Entry>,
}

impl Held {
    /// Returns its size as counted against the limits.
    pub fn bytes(&self) -> u64 {
        bytes(&self.entry)
    }
}

/// Returns the size of an event as counted against the limits.
pub(crate) fn bytes(entry: &Entry) -> u64 {
    const REST: usize = 128;
    let metadata = entry.metadata.as_ref().map_or(0, |metadata| metadata.as_str().len());
    (entry.data.as_str().len() + metadata + REST) as u64
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

/// A request for events.
#[derive(Clone, Debug, Default)]
pub struct WantedEvents {
    /// Streams and revisions of logged or held events.
    pub places: Vec<(StreamId, Revision)>,
    /// Ids of logged events.
    pub ids: Vec<EventId>,
}

impl WantedEvents {
    /// Returns whether the request is empty.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty() && self.ids.is_empty()
    }
}

/// The events that were found, in any order.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Events in the log.
    pub logged: Vec<Event>,
    /// Held events.
    pub held: Vec<Held>,
}

/// Held events of a stream, by revision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeldPage {
    /// The lowest held events.
    pub held: Vec<Held>,
    /// `true` if more events follow.
    pub more: bool,
}

impl HeldPage {
    /// Takes as many events as fit the limit, at least two, and reduces the limit. The last event
    /// of a cut page only tells where to continue.
    pub fn cut(held: impl Iterator<Item = Held>, room: &mut Limit) -> Self {
        let mut page = Self::default();
        for held in held {
            let bytes = usize::try_from(held.bytes()).unwrap_or(usize::MAX);
            if page.held.len() >= 2 && (room.events == 0 || room.bytes < bytes) {
                page.more = true;
                break;
            }
            room.events = room.events.saturating_sub(1);
            room.bytes = room.bytes.saturating_sub(bytes);
            page.held.push(held);
        }
        page
    }
}

/// The reason why a delivery or a held event can't be appended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConflictReason {
    /// The log has another event with its revision.
    Logged,
    /// Another event with its revision is held.
    Held,
    /// Its revision was skipped: an operator said that it does not exist.
    Skipped,
    /// The stream has revisions that its link leaves out, or lacks its revision but has later ones.
    Link,
    /// Its id belongs to another event.
    IdTaken {
        /// The stream of that event.
        stream: StreamId,
        /// Its revision.
        revision: Revision,
    },
}

impl fmt::Display for ConflictReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Logged => f.write_str("the log has another event with this revision"),
            Self::Held => f.write_str("another event with this revision is held"),
            Self::Skipped => f.write_str("this revision was skipped by an operator"),
            Self::Link => f.write_str("it does not fit between the revisions that are there"),
            Self::IdTaken { stream, revision } => {
                write!(f, "its id belongs to revision {revision} of stream {stream}")
            }
        }
    }
}

/// An event that conflicts with the stored ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Conflict {
    /// Its stream.
    pub stream: StreamId,
    /// The revision that it claims.
    pub revision: Revision,
    /// The reason of the conflict.
    pub why: ConflictReason,
    /// The time at which it arrived.
    pub since: Timestamp,
    /// The event itself.
    pub entry: Arc<Entry>,
    /// The decision of an operator, if there is one.
    pub decided: Option<Resolution>,
}

/// The decision that the stored events are right. It is kept, so that the same event need not be
/// decided again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolution {
    /// The reason.
    pub reason: String,
    /// The time of the decision.
    pub at: Timestamp,
}

impl Conflict {
    /// Returns the identity of the conflict. It is the same if the same event arrives again.
    pub fn id(&self) -> String {
        let Entry { id, kind, data, .. } = &*self.entry;
        let revision = self.revision.0.to_string();
        // Names contain no control characters, so different conflicts never produce the same text.
        let parts = [self.stream.as_str(), &revision, id.as_str(), kind.as_str(), data.as_str()];
        let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, parts.join("\n").as_bytes());
        id.simple().to_string()
    }
}

/// A decision of an operator that revisions do not exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The stream.
    pub stream: StreamId,
    /// The revision before the first skipped one.
    pub after: Revision,
    /// The last skipped revision.
    pub through: Revision,
    /// The reason.
    pub reason: String,
    /// The time of the decision.
    pub at: Timestamp,
}

/// A message that is not a valid event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The feed that delivered it.
    pub source: String,
    /// The reason of the rejection.
    pub reason: String,
    /// The time at which it arrived.
    pub since: Timestamp,
    /// Its headers and keys.
    pub attributes: BTreeMap<String, String>,
    /// Its content, unchanged.
    pub content: Vec<u8>,
}

impl Rejected {
    /// Returns the identity of the message. It is the same if the same message arrives again.
    pub fn id(&self) -> String {
        let mut text = Vec::new();
        let attributes = self.attributes.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
        for part in [self.source.as_bytes()].into_iter().chain(attributes).chain([&self.content[..]]) {
            text.extend((part.len() as u64).to_le_bytes());
            text.extend(part);
        }
        Uuid::new_v5(&Uuid::NAMESPACE_OID, &text).simple().to_string()
    }
}

/// The maximum number of rejected messages that are kept.
pub const MAX_REJECTED: u64 = 10_000;

/// Returns the error of a store that has reached this maximum.
pub fn too_many_rejected(place: &str) -> Error {
    let message = format!(
        "could not keep a rejected message in {place}: there are {MAX_REJECTED} already; look at them, submit them again \
         or forget them"
    );
    Error::new(crate::error::Kind::Full, message)
}

/// A change of one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamChange {
    /// The stream.
    pub stream: StreamId,
    /// The state from which it was computed. If the stream has changed since, nothing is written.
    pub seen: StreamVersion,
    /// The entries to append to the log, by revision, all above the last.
    pub append: Vec<(Revision, Arc<Entry>)>,
    /// The events to hold, by revision.
    pub hold: Vec<Held>,
    /// The revisions that are no longer held.
    pub unhold: Vec<Revision>,
    /// The gap after the change.
    pub waiting: Option<Waiting>,
}

/// Changes of streams of one partition, written atomically.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settlement {
    /// The partition.
    pub partition: Partition,
    /// The streams, each once.
    pub steps: Vec<StreamChange>,
    /// New conflicts. A conflict that is already kept changes nothing.
    pub conflicts: Vec<Conflict>,
    /// The decision that revisions do not exist, if this settlement records one.
    pub skipped: Option<Skipped>,
    /// The limits of the partition. They apply only to totals that grow.
    pub bounds: Totals,
    /// The counters to add.
    pub counts: SequencerCounts,
}

/// The result of a settlement.
#[derive(Debug)]
pub enum Settled {
    /// It is stored, durably. Its events are consecutive in the log, in the order of the steps.
    Applied {
        /// The position before the first of them.
        before: Position,
    },
    /// These streams have changed. Nothing is written.
    Moved(Vec<StreamId>),
    /// These ids belong to events in the log. Nothing is written.
    Taken(Vec<EventId>),
    /// It would exceed the limits. Nothing is written.
    Full,
    /// The outcome is unknown: it may be written now or later. Settle again from the stored state.
    Unknown(Error),
}

/// A store that keeps the sequencer's state.
pub trait Sequences: Append {
    /// Returns the states of streams. They may be outdated: settling from an outdated state is
    /// rejected.
    fn survey(&self, streams: Vec<StreamId>) -> impl Future<Output = Result<Survey>> + Send;

    /// Returns the maximum size of an event's data, and of its metadata.
    fn max_event_bytes(&self) -> usize;

    /// Returns the requested events that are logged or held now. Events that are not found do not
    /// exist.
    fn find(&self, wanted: WantedEvents) -> impl Future<Output = Result<Found>> + Send;

    /// Returns the lowest held events of each of these streams as of now: up to the limit in all,
    /// but at least two of each.
    fn held(
        &self,
        streams: Vec<StreamId>,
        limit: Limit,
    ) -> impl Future<Output = Result<BTreeMap<StreamId, HeldPage>>> + Send;

    /// Writes changes of streams atomically, if each stream is in the state that was seen. `Err`
    /// means that nothing was written.
    fn settle(&self, settlement: Arc<Settlement>) -> impl Future<Output = Result<Settled>> + Send;

    /// Returns streams with held events, ordered by id, after an id.
    fn waiting(
        &self,
        after: Option<StreamId>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(StreamId, StreamState)>>> + Send;

    /// Returns streams with held events that are [due](DueGaps::is), the longest waiting first.
    fn overdue(
        &self,
        due: DueGaps,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(StreamId, StreamState)>>> + Send;

    /// Returns undecided conflicts, ordered by stream, revision and id, after one of these.
    fn conflicts(
        &self,
        after: Option<Conflict>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Conflict>>> + Send;

    /// Returns the operators' decisions about missing revisions of a stream.
    fn skipped(&self, stream: &StreamId) -> impl Future<Output = Result<Vec<Skipped>>> + Send;

    /// Keeps messages that are not valid events. A message that is already kept changes nothing.
    /// Fails with [`Kind::Full`](crate::Kind::Full), and keeps none, if there would be more than
    /// [`MAX_REJECTED`].
    fn reject(&self, rejected: Vec<Rejected>) -> impl Future<Output = Result<()>> + Send;

    /// Returns rejected messages, ordered by id, after an id.
    fn rejected(
        &self,
        after: Option<String>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Rejected>>> + Send;

    /// Returns the number of rejected messages.
    fn count_rejected(&self) -> impl Future<Output = Result<u64>> + Send;

    /// Deletes a rejected message. Returns whether it existed.
    fn forget(&self, rejected: &str) -> impl Future<Output = Result<bool>> + Send;

    /// Stores a decision with its conflict, or removes the conflict if there is no decision.
    /// Returns whether there was an undecided conflict.
    fn resolve(
        &self,
        conflict: &Conflict,
        decided: Option<Resolution>,
    ) -> impl Future<Output = Result<bool>> + Send;
}
