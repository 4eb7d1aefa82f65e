//! The reasons why a document is missing.

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use super::as_of::Until;
use super::retell::{Outcome, Retelling};
use crate::documents::Parked;
use crate::error::Result;
use crate::event::{DocumentId, EventKind, Revision, StreamId};
use crate::fold::{Folder, Occurrence, Projection, Replay};
use crate::log::Limit;
use crate::store::Store;

/// A reason why a document is missing.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "why")]
#[non_exhaustive]
pub enum Absence {
    /// The document exists.
    There,
    /// An event of the document could not be folded, and there was no document before it.
    Parked {
        /// The failing event and its error.
        parked: Box<Parked>,
    },
    /// An event deleted the document.
    Deleted {
        /// The event.
        by: Occurrence,
    },
    /// Events were folded into it, but none produced a document.
    Nothing {
        /// The number of events.
        events: u64,
        /// The last event.
        last: Occurrence,
    },
    /// An event in the log belongs to it but is not folded yet.
    Behind {
        /// The first such event.
        event: Occurrence,
        /// The number of events that the projection still has to fold.
        lag: u64,
    },
    /// An event that belongs to it counts as folded, and yet there is no document.
    Missing {
        /// The event.
        event: Occurrence,
    },
    /// The stream with its name has events of types that the projection ignores.
    Filtered {
        /// The number of events.
        events: u64,
        /// The types of these events.
        kinds: BTreeSet<EventKind>,
    },
    /// The stream with its name has events that belong to other documents.
    Elsewhere {
        /// The number of events.
        events: u64,
        /// Some of these documents; none if the events belong to no document.
        documents: BTreeSet<DocumentId>,
    },
    /// Streams are parked because an event of each could not be decoded. Such an event may belong
    /// to this document.
    SetAside {
        /// The first such stream.
        stream: StreamId,
        /// The failing event and its error.
        parked: Box<Parked>,
    },
    /// An event that belongs to it came early and is held before the log.
    Held {
        /// The stream.
        stream: StreamId,
        /// The event's revision.
        revision: Revision,
        /// The missing revision.
        waits_for: Revision,
        /// The time since when it is held.
        since: Timestamp,
    },
    /// An event that belongs to it conflicts with the log and is kept as a conflict.
    InConflict {
        /// The stream.
        stream: StreamId,
        /// The revision of the conflicting event.
        revision: Revision,
        /// The reason of the conflict.
        reason: String,
    },
    /// No event belongs to it, neither in the log nor held before it.
    NeverRouted,
}

/// The maximum number of other documents to name.
const NAMED: usize = 5;

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = |event: &Occurrence| format!("{} ({}@{})", event.kind, event.stream, event.revision);
        match self {
            Self::There => f.write_str("it is there"),
            Self::Parked { parked } => write!(
                f,
                "parked: its event {} ({}@{}) could not be folded: {}; fix the cause, then retry it",
                parked.kind, parked.stream, parked.revision, parked.error
            ),
            Self::Deleted { by } => write!(f, "deleted: by {}, at {}", event(by), by.time),
            Self::Nothing { events, last } => write!(
                f,
                "filtered: {events} of its events were folded, the last of them {}, and none left a \
                 document; the projection returns no document for them",
                event(last)
            ),
            Self::Behind { event: first, lag } => write!(
                f,
                "behind: {} is in the log and not folded yet, the projection is {lag} events behind; check \
                 that a worker runs",
                event(first)
            ),
            Self::Missing { event: missing } => write!(
                f,
                "missing: {} should have created it; refold it, and verify the other documents",
                event(missing)
            ),
            Self::Filtered { events, kinds } => {
                let kinds: Vec<_> = kinds.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "filtered: the stream with its name has {events} events of types that the projection \
                     ignores: {}",
                    kinds.join(", ")
                )
            }
            Self::Elsewhere { events, documents } if documents.is_empty() => write!(
                f,
                "never routed: the stream with its name has {events} events, and the projection routes them \
                 to no document"
            ),
            Self::Elsewhere { events, documents } => {
                let documents: Vec<_> = documents.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "never routed: the stream with its name has {events} events, which the projection \
                     routes to other documents: {}",
                    documents.join(", ")
                )
            }
            Self::SetAside { stream, parked } => write!(
                f,
                "maybe parked: the stream {stream} is parked since {} (revision {}): {}; its events can't \
                 be routed until the cause is fixed and the stream is retried",
                parked.kind, parked.revision, parked.error
            ),
            Self::Held { stream, revision, waits_for, since } => write!(
                f,
                "held: {stream}@{revision} arrived before {stream}@{waits_for} and waits for it since \
                 {since}; send the missing event again, or skip it if it does not exist"
            ),
            Self::InConflict { stream, revision, reason } => write!(
                f,
                "in conflict: {stream}@{revision} arrived and is kept as a conflict: {reason}; keep or \
                 discard it"
            ),
            Self::NeverRouted => {
                f.write_str("never routed: no event of the log belongs to it, and none is held; check the id")
            }
        }
    }
}

impl<P: Projection> Folder<P> {
    /// Returns the reasons why a document is missing, as far as the log and the documents tell.
    pub(crate) async fn why_not<S: Store>(&self, store: &S, id: &DocumentId) -> Result<Vec<Absence>> {
        // Read the checkpoint first: each event up to it has left a record by the second read.
        let checkpoint = store.checkpoint(&self.collection).await?.mark;
        let record = store.load_current(&self.collection, vec![id.clone()]).await?.pop();
        if let Some(record) = record {
            if record.body.is_some() {
                return Ok(vec![Absence::There]);
            }
            if let Some(parked) = record.header.parked {
                return Ok(vec![Absence::Parked { parked }]);
            }
            return Ok(self.gone(store, id).await?.into_iter().collect());
        }
        let mut reasons = Vec::new();
        let head = store.heads().await?;
        let lag = checkpoint.distance(&head);
        let mut not_folded = |event: Occurrence| {
            let is_folded = event.position <= checkpoint.position(event.partition);
            reasons.push(if is_folded { Absence::Missing { event } } else { Absence::Behind { event, lag } });
        };
        let named = self.named_like(store, id).await?;
        if let Some(first) = named.first {
            not_folded(first);
        } else if !self.routes_by_stream() {
            let mut replay = Replay::Range { from: checkpoint.clone(), through: head };
            'log: while let Some((_, page)) = replay.next(store).await? {
                for event in page.events {
                    let occurrence = Occurrence::of(&event);
                    if self.documents_of(event).is_ok_and(|ids| ids.as_slice().contains(id)) {
                        not_folded(occurrence);
                        break 'log;
                    }
                }
            }
        }
        if !named.passed.is_empty() {
            reasons.push(Absence::Filtered { events: named.passed_events, kinds: named.passed });
        }
        if named.elsewhere_events > 0 {
            reasons.push(Absence::Elsewhere { events: named.elsewhere_events, documents: named.elsewhere });
        }
        if let Some(record) = store.parked(&self.collection.streams(), None, 1).await?.pop()
            && let Some(parked) = record.header.parked
        {
            reasons.push(Absence::SetAside { stream: StreamId::new(&record.id)?, parked });
        }
        Ok(reasons)
    }

    /// Returns the reason why a document with a record has no body.
    async fn gone<S: Store>(&self, store: &S, id: &DocumentId) -> Result<Option<Absence>> {
        let Some(through) = self.told_through(store, id).await? else { return Ok(None) };
        let mut retelling = Retelling::new(self, store, id, Until::Now, through).await?;
        let (mut events, mut was_there, mut found) = (0, false, None);
        while let Some((event, told)) = retelling.next(store).await? {
            if !matches!(told, Outcome::Folded) {
                continue;
            }
            events += 1;
            let is_there = retelling.document.is_some();
            found = match found {
                _ if is_there => None,
                _ if was_there => Some(Absence::Deleted { by: event }),
                Some(deleted @ Absence::Deleted { .. }) => Some(deleted),
                _ => Some(Absence::Nothing { events, last: event }),
            };
            was_there = is_there;
        }
        Ok(found)
    }

    /// Summarizes how the projection sees the events of the stream with a document's name.
    async fn named_like<S: Store>(&self, store: &S, id: &DocumentId) -> Result<Named> {
        let mut named = Named::default();
        let Ok(stream) = StreamId::new(id) else { return Ok(named) };
        let mut after = Revision(0);
        loop {
            let events = store.read_stream(&stream, after, Limit::default()).await?;
            let Some(last) = events.last() else { return Ok(named) };
            after = last.revision;
            for event in events {
                let (occurrence, kind) = (Occurrence::of(&event), event.kind.clone());
                match self.concern(event) {
                    None => {
                        named.passed_events += 1;
                        named.passed.insert(kind);
                    }
                    Some(Err(_)) if !self.routes_by_stream() => {}
                    Some(Ok(ids)) if !ids.as_slice().contains(id) => {
                        named.elsewhere_events += 1;
                        let room = NAMED.saturating_sub(named.elsewhere.len());
                        named.elsewhere.extend(ids.as_slice().iter().take(room).cloned());
                    }
                    Some(_) => {
                        named.first.get_or_insert(occurrence);
                    }
                }
            }
        }
    }
}

/// A summary of how a projection sees the events of a stream.
#[derive(Default)]
struct Named {
    /// The first event that belongs to the document with the stream's name.
    first: Option<Occurrence>,
    passed_events: u64,
    passed: BTreeSet<EventKind>,
    elsewhere_events: u64,
    elsewhere: BTreeSet<DocumentId>,
}
