//! What a store keeps for the sequencer beside the log: held events, what their streams wait for, and conflicts.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::counts::Counts;
use crate::error::{Error, Result};
use crate::event::{Event, EventId, Partition, Position, Revision, StreamId};
use crate::log::{Append, Entry, Limit};

/// An event that came before its predecessor.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// Its stream.
    pub stream: StreamId,
    /// Its revision.
    pub revision: Revision,
    /// The revision that must be in the log before it.
    pub previous: Revision,
    /// When it came.
    pub since: Timestamp,
    /// The event itself.
    pub entry: Arc<Entry>,
}

impl Held {
    /// What it counts against the bounds.
    pub fn bytes(&self) -> u64 {
        bytes(&self.entry)
    }
}

/// What an event counts against the bounds.
pub(crate) fn bytes(entry: &Entry) -> u64 {
    const REST: usize = 128;
    let metadata = entry.metadata.as_ref().map_or(0, |metadata| metadata.as_str().len());
    (entry.data.as_str().len() + metadata + REST) as u64
}

/// What a stream waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// A number that is another one after each change: it tells what a change was computed from.
    pub version: u64,
    /// An operator said that up to here nothing more will come. 0 if nobody did.
    pub skipped: Revision,
    /// How many events are held.
    pub events: u64,
    /// What they count against the bounds.
    pub bytes: u64,
    /// The first of them.
    pub first: Revision,
    /// The revision that the first one waits for.
    pub until: Revision,
    /// The last of them.
    pub highest: Revision,
    /// Since when it waits for just this.
    pub since: Timestamp,
    /// When to ask for what is missing, not before.
    pub ask_at: Timestamp,
    /// How often it was asked for.
    pub asked: u32,
    /// What the last one who was asked answered.
    pub trouble: Option<String>,
}

/// Which streams it is time to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Those that wait since this time or longer, …
    pub since: Timestamp,
    /// … and are not to be asked for later than now.
    pub now: Timestamp,
    /// A time beyond this one was written by a clock that was wrong, and counts as passed.
    pub end: Timestamp,
}

impl Due {
    /// Whether it is time to ask for what a stream waits for.
    pub fn is(&self, waiting: &Waiting) -> bool {
        let passed = |time: Timestamp, until: Timestamp| time <= until || time > self.end;
        passed(waiting.since, self.since) && passed(waiting.ask_at, self.now)
    }
}

/// Where a stream is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Its last revision in the log; 0 if there is none.
    pub last: Revision,
    /// What it waits for, if something is held or was skipped.
    pub waiting: Option<Waiting>,
}

impl Standing {
    /// All up to here is in the log, or will never be.
    pub fn after(&self) -> Revision {
        self.last.max(self.waiting.as_ref().map_or(Revision(0), |waiting| waiting.skipped))
    }

    /// What guards a change that was computed from it.
    pub fn seen(&self) -> Seen {
        Seen { last: self.last, version: self.waiting.as_ref().map(|waiting| waiting.version) }
    }
}

/// What a change was computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The stream's last revision in the log.
    pub last: Revision,
    /// The version of what it waits for, if it waits.
    pub version: Option<u64>,
}

/// How much is kept in a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Held events.
    pub events: u64,
    /// What they count against the bounds.
    pub bytes: u64,
    /// Conflicts that nobody has resolved.
    pub conflicts: u64,
}

impl Totals {
    /// Whether what grew from what there was before stays within bounds.
    pub fn is_within(&self, bounds: &Self, before: &Self) -> bool {
        let pairs = [
            (self.events, bounds.events, before.events),
            (self.bytes, bounds.bytes, before.bytes),
            (self.conflicts, bounds.conflicts, before.conflicts),
        ];
        pairs.into_iter().all(|(kept, bound, before)| kept <= bound || kept <= before)
    }
}

/// Where streams are, and how much is kept.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Each of the streams that were asked for.
    pub streams: BTreeMap<StreamId, Standing>,
    /// Each partition in which something is kept.
    pub totals: BTreeMap<Partition, Totals>,
    /// What was done in all partitions, as settlements said.
    pub counts: Counts,
}

/// What to look for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// What is logged, or held, at these places.
    pub places: Vec<(StreamId, Revision)>,
    /// What is logged under these ids.
    pub ids: Vec<EventId>,
}

impl Wanted {
    /// Whether nothing is wanted.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty() && self.ids.is_empty()
    }
}

/// What was found, in any order.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Events in the log.
    pub logged: Vec<Event>,
    /// Held events.
    pub held: Vec<Held>,
}

/// Held events of a stream, by revision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The lowest of those there are.
    pub held: Vec<Held>,
    /// Whether there are more behind them.
    pub more: bool,
}

impl Page {
    /// As many of these as there is room for, at least two, which makes the room smaller. The last of a page that is cut
    /// only tells where to go on.
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

/// Why a delivery, or a held event, can't be appended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// Another event has its revision, in the log.
    Logged,
    /// Another event with its revision is held.
    Held,
    /// Its revision was skipped: an operator said that it does not exist.
    Skipped,
    /// The stream has revisions that its link leaves out, or lacks its revision while it has later ones.
    Link,
    /// Its id belongs to another event.
    IdTaken {
        /// The stream of that event.
        stream: StreamId,
        /// Its revision.
        revision: Revision,
    },
}

impl fmt::Display for Why {
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

/// An event that contradicts what is there.
#[derive(Clone, Debug, PartialEq)]
pub struct Conflict {
    /// Its stream.
    pub stream: StreamId,
    /// The revision it claims.
    pub revision: Revision,
    /// What is wrong with it.
    pub why: Why,
    /// When it came.
    pub since: Timestamp,
    /// The event itself.
    pub entry: Arc<Entry>,
    /// What somebody decided, once somebody did.
    pub decided: Option<Decided>,
}

/// The decision that what is stored is right. It is remembered, so that the same event need not be decided again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// Why.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}

impl Conflict {
    /// Tells it from others. The same event that comes again is the same conflict.
    pub fn id(&self) -> String {
        let Entry { id, kind, data, .. } = &*self.entry;
        let revision = self.revision.0.to_string();
        // No name has a control character in it, so that no two conflicts make the same text.
        let parts = [self.stream.as_str(), &revision, id.as_str(), kind.as_str(), data.as_str()];
        let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, parts.join("\n").as_bytes());
        id.simple().to_string()
    }
}

/// What an operator said about revisions that do not exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The stream.
    pub stream: StreamId,
    /// Everything after this one, …
    pub after: Revision,
    /// … up to this one.
    pub through: Revision,
    /// Why.
    pub reason: String,
    /// When it was said.
    pub at: Timestamp,
}

/// A message that is no event, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The feed that brought it.
    pub source: String,
    /// What is wrong with it.
    pub reason: String,
    /// When it came.
    pub since: Timestamp,
    /// What came beside its content: headers, keys.
    pub attributes: BTreeMap<String, String>,
    /// Its content, as it came.
    pub content: Vec<u8>,
}

impl Rejected {
    /// Tells it from others. The same message that comes again is the same.
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

/// The most messages that are kept as rejected.
pub const MAX_REJECTED: u64 = 10_000;

/// What a store says when it keeps as many as it may.
pub fn too_many_rejected(place: &str) -> Error {
    let message = format!(
        "could not keep a rejected message in {place}: there are {MAX_REJECTED} already; look at them, submit them again \
         or forget them"
    );
    Error::new(crate::error::Kind::Full, message)
}

/// A change of one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The stream.
    pub stream: StreamId,
    /// What it was computed from. If the stream is elsewhere by now, nothing is written.
    pub seen: Seen,
    /// What goes into the log, by revision, all above the last.
    pub append: Vec<(Revision, Arc<Entry>)>,
    /// What is held from now on, by revision.
    pub hold: Vec<Held>,
    /// What is no longer held.
    pub unhold: Vec<Revision>,
    /// What it waits for then.
    pub waiting: Option<Waiting>,
}

/// Changes of streams of one partition, to be written as one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settlement {
    /// The partition.
    pub partition: Partition,
    /// The streams, each once.
    pub steps: Vec<Step>,
    /// What contradicts what is there. One that is kept already changes nothing.
    pub conflicts: Vec<Conflict>,
    /// What was said about revisions that do not exist.
    pub skipped: Option<Skipped>,
    /// What the partition may keep. What does not grow is not bounded.
    pub bounds: Totals,
    /// What it does, to be added to what was done before.
    pub counts: Counts,
}

/// What became of a settlement.
#[derive(Debug)]
pub enum Settled {
    /// It is stored, durably. The events are in the log one after the other, in the order of the steps.
    Applied {
        /// The position before the first of them.
        before: Position,
    },
    /// These streams are not where they were seen. Nothing is written.
    Moved(Vec<StreamId>),
    /// These ids are taken by events in the log. Nothing is written.
    Taken(Vec<EventId>),
    /// It would keep more than it may. Nothing is written.
    Full,
    /// It can't be told whether it was written, or will be later. Settle it anew from what is stored then.
    Unknown(Error),
}

/// What a store keeps for the sequencer.
pub trait Sequences: Append {
    /// Where streams are, as far as can be told: who settles from a survey that is not true any more is told so.
    fn survey(&self, streams: Vec<StreamId>) -> impl Future<Output = Result<Survey>> + Send;

    /// The largest data, and the largest metadata, that an event may have.
    fn max_event_bytes(&self) -> usize;

    /// What is logged or held where it is looked for, as it is now: what is not found is not there.
    fn find(&self, wanted: Wanted) -> impl Future<Output = Result<Found>> + Send;

    /// The lowest held events of each of these streams, as they are now: all together up to the limit, at least two of each.
    fn held(
        &self,
        streams: Vec<StreamId>,
        limit: Limit,
    ) -> impl Future<Output = Result<BTreeMap<StreamId, Page>>> + Send;

    /// Writes changes of streams, all or none, if each is where it was seen. `Err` means that nothing was written.
    fn settle(&self, settlement: Arc<Settlement>) -> impl Future<Output = Result<Settled>> + Send;

    /// Streams for which something is held, by id, after an id.
    fn waiting(
        &self,
        after: Option<StreamId>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(StreamId, Standing)>>> + Send;

    /// Streams for which something is held and that are [due](Due::is): first those that wait longest.
    fn overdue(
        &self,
        due: Due,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(StreamId, Standing)>>> + Send;

    /// Conflicts that nobody has decided, by stream, revision and id, after one of these.
    fn conflicts(
        &self,
        after: Option<Conflict>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Conflict>>> + Send;

    /// What operators said about revisions of a stream.
    fn skipped(&self, stream: &StreamId) -> impl Future<Output = Result<Vec<Skipped>>> + Send;

    /// Keeps messages that are no events. One that is kept already changes nothing. Fails with
    /// [`Kind::Full`](crate::Kind::Full), and keeps none, if there are then more than [`MAX_REJECTED`].
    fn reject(&self, rejected: Vec<Rejected>) -> impl Future<Output = Result<()>> + Send;

    /// Rejected messages, by id, after an id.
    fn rejected(
        &self,
        after: Option<String>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Rejected>>> + Send;

    /// How many rejected messages there are.
    fn count_rejected(&self) -> impl Future<Output = Result<u64>> + Send;

    /// Forgets a rejected message. Answers whether it was there.
    fn forget(&self, rejected: &str) -> impl Future<Output = Result<bool>> + Send;

    /// Keeps a decision with its conflict, or removes the conflict if there is none. Answers whether there was an undecided
    /// one.
    fn resolve(
        &self,
        conflict: &Conflict,
        decided: Option<Decided>,
    ) -> impl Future<Output = Result<bool>> + Send;
}
