//! Documents: the storage of read models. Each document carries the mark of the events it has
//! folded.
//!
//! The trait requires only conditional writes of single documents. Stores with transactions commit
//! a batch as one. Other stores write documents first and the checkpoint last, and the guards keep
//! that correct.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

mod collection;
mod frozen;
mod generations;
pub mod guarded;
mod read;

pub use collection::Collection;
pub(crate) use frozen::{folded, freeze, frozen};
pub use generations::{Generation, Generations, Switching};
pub use read::{Get, ReadError};

use crate::error::{Invalid, Result};
use crate::event::{DocumentId, EventKind, Partition, Position, Revision, StreamId};
use crate::json::Json;
use crate::mark::Mark;

/// The longest body of a document, in bytes. A fold that produces a longer one fails.
pub const MAX_BODY_BYTES: usize = 16_000_000;

/// The deepest nesting of a document. Readers wrap documents in lists and messages, and every
/// reader can parse this depth.
pub const MAX_BODY_DEPTH: usize = 100;

/// The reason why a document is parked, or a stream if the projection does not route by stream. The
/// events themselves stay in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// The stream of the event that failed.
    pub stream: StreamId,
    /// The revision of that event.
    pub revision: Revision,
    /// The type of that event.
    pub kind: EventKind,
    /// The partition of that event.
    pub partition: Partition,
    /// The position of that event.
    pub position: Position,
    /// The error message.
    pub error: String,
    /// The number of attempts to fold the event.
    pub attempts: u32,
    /// The time since when it is parked.
    pub since: Timestamp,
    /// The mark up to which every event is folded or concerns other documents.
    pub from: Mark,
    /// The mark of the last events that were set aside.
    pub through: Mark,
    /// The number of waiting events, including the failing one.
    pub waiting: u64,
    /// For a document: `true` if it must be folded again from its first event, because it holds
    /// events after the failing one. For a stream: `true` while a retry is under way, so some
    /// documents already hold its events.
    #[serde(default)]
    pub anew: bool,
}

#[cfg(test)]
impl Parked {
    /// Returns a record parked at the seventh event of the first partition, with nothing folded.
    pub(crate) fn example() -> Self {
        Self {
            stream: StreamId::new("s").unwrap(),
            revision: Revision(3),
            kind: EventKind::new("noted").unwrap(),
            partition: Partition(0),
            position: Position(7),
            error: "poison".into(),
            attempts: 1,
            since: Timestamp::default(),
            from: Mark::default(),
            through: Mark::default(),
            waiting: 1,
            anew: false,
        }
    }
}

/// The guard of a document. A write names the header it was computed from, and succeeds only if
/// that header is still stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The events it has folded.
    pub mark: Mark,
    /// The reason why it is parked, if it is.
    pub parked: Option<Box<Parked>>,
}

/// A stored document. A document without a body is invisible to readers: it was deleted, or its
/// first event failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The id of the document.
    pub id: DocumentId,
    /// The guard of the document.
    pub header: Header,
    /// The content that readers see.
    pub body: Option<Json>,
}

impl Record {
    /// Subtracts the body's length from the bytes left in a page and returns whether it fits. The
    /// first record of a page always fits.
    pub fn fits(&self, is_first: bool, left: &mut usize) -> bool {
        let length = self.body.as_ref().map_or(0, |body| body.as_str().len());
        let fits = is_first || length <= *left;
        *left = left.saturating_sub(length);
        fits
    }
}

/// A guarded write of one document.
#[derive(Clone, Debug, PartialEq)]
pub struct DocumentWrite {
    /// The header it was computed from; `None` if there was no record.
    pub expected: Option<Header>,
    /// The record to store.
    pub record: Record,
}

impl DocumentWrite {
    /// Returns whether the stored header is still the one this write was computed from. A store
    /// checks that and writes in one step.
    pub fn holds(&self, stored: Option<&Header>) -> bool {
        self.expected.as_ref() == stored
    }
}

/// The guarded writes to one collection.
#[derive(Clone, Debug)]
pub struct CollectionWrites {
    /// The collection.
    pub collection: Collection,
    /// At most one write per document.
    pub writes: Vec<DocumentWrite>,
}

/// The progress of a projection: a mark with the partitions as lanes, and its counters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checkpoint {
    /// The mark up to which every event is folded, set aside or irrelevant.
    pub mark: Mark,
    /// The counters up to that mark.
    pub tally: Tally,
}

/// The counters of a projection since it began. They are stored with the checkpoint, so they are
/// exact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// Events read.
    pub events: u64,
    /// Applications of an event to a document.
    pub applied: u64,
    /// Applications that the document already held.
    pub skipped: u64,
    /// Events of types the projection does not know.
    pub ignored: u64,
    /// Applications set aside for a parked document or stream.
    pub set_aside: u64,
    /// Retried folds.
    pub retried: u64,
    /// Documents and streams parked.
    pub parked: u64,
    /// Documents that were folded again because another writer had changed them.
    pub conflicts: u64,
    /// The last error.
    pub last_error: Option<String>,
}

impl Tally {
    /// Adds counters that were collected after these.
    pub fn absorb(&mut self, later: &Self) {
        self.events += later.events;
        self.applied += later.applied;
        self.skipped += later.skipped;
        self.ignored += later.ignored;
        self.set_aside += later.set_aside;
        self.retried += later.retried;
        self.parked += later.parked;
        self.conflicts += later.conflicts;
        if later.last_error.is_some() {
            self.last_error.clone_from(&later.last_error);
        }
    }
}

/// A step of a checkpoint, guarded by its current mark.
#[derive(Clone, Debug)]
pub struct Advance {
    /// The projection.
    pub projection: Collection,
    /// The mark the checkpoint must have now.
    pub from: Mark,
    /// The checkpoint after the step, with its counters.
    pub to: Checkpoint,
}

impl Advance {
    /// Returns whether the checkpoint is still where this step begins. A checkpoint that was never
    /// stored is at the beginning.
    pub fn holds(&self, stored: &Mark) -> bool {
        self.from == *stored
    }
}

/// Writes that belong together.
///
/// A store with transactions writes the checkpoint first and then all documents, or nothing. Any
/// other store writes each document under its own guard, collection by collection in the given
/// order. It continues with the next collection, and finally the checkpoint, only if all guards
/// held so far.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// The step of the checkpoint, if the writes belong to one.
    pub advance: Option<Advance>,
    /// The writes. Parked streams come before the documents that were folded without them.
    pub changes: Vec<CollectionWrites>,
}

impl Commit {
    /// Returns an error if the commit contains something that every store rejects.
    pub fn check(&self) -> Result<(), Invalid> {
        for CollectionWrites { collection, writes } in &self.changes {
            for Record { id, body, .. } in writes.iter().map(|write| &write.record) {
                if let Some(body) = body
                    && body.as_str().len() > MAX_BODY_BYTES
                {
                    let bytes = body.as_str().len();
                    let expected = format!(
                        "at most {MAX_BODY_BYTES} bytes, and the body of {id} in {collection} has {bytes}; split the \
                         document"
                    );
                    return Err(Invalid::new("document", id.as_str(), expected));
                }
            }
        }
        Ok(())
    }
}

/// The result of a commit.
#[derive(Debug)]
#[must_use = "only `Applied` means that it is stored"]
pub enum CommitOutcome {
    /// The commit is stored durably.
    Applied,
    /// Some guards did not hold. A store with transactions has written nothing. Any other store has
    /// written the documents it does not name, up to the collection of the conflict, but not the
    /// checkpoint.
    Conflict(CommitConflict),
    /// The outcome is unknown: all or parts of the commit may be written now or later. Repeat the
    /// same commit; its guards make that harmless.
    Unknown(crate::Error),
}

/// The guards that did not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitConflict {
    /// `true` if the checkpoint was not at the expected mark: another worker does this work.
    pub checkpoint: bool,
    /// The documents with other headers. May be empty if the checkpoint conflicts.
    pub documents: Vec<(Collection, DocumentId)>,
}

/// The result of claiming the lease on a projection. A lease avoids double work; correctness does
/// not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The work is ours until the lease ends.
    Ours,
    /// Another worker holds the lease.
    Theirs {
        /// The time until the lease ends, unless the other worker renews it.
        ends_in: Duration,
    },
}

impl Claim {
    /// Decides a claim. It succeeds if nobody holds the lease, if the lease has ended, or if
    /// `owner` already holds it. `lease` is the last owner and the time left.
    pub fn judge(lease: Option<(&str, Duration)>, owner: &str) -> Self {
        match lease {
            Some((other, ends_in)) if other != owner && !ends_in.is_zero() => Self::Theirs { ends_in },
            _ => Self::Ours,
        }
    }
}

/// The number of documents in a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DocumentCounts {
    /// Documents that readers see.
    pub documents: u64,
    /// Parked documents, whether readers see them or not.
    pub parked: u64,
    /// The time since when the first of them is parked, to the second.
    pub parked_since: Option<Timestamp>,
}

/// A store of documents and of the checkpoints of their projections.
///
/// A plain collection name means the [live](Generations::live) generation at the time of the call.
/// A [generation](Collection::generation) means that generation, whichever is live.
/// [`Collection::stored`] resolves a name to the stored records.
pub trait Documents: Send + Sync + 'static {
    /// Creates the collection or generation, and its [hidden one](Collection::streams), if they do
    /// not exist yet.
    fn prepare(&self, collection: &Collection) -> impl Future<Output = Result<()>> + Send;

    /// Returns the records with these ids, in any order. Ids without a record are left out.
    ///
    /// The answer may be slightly stale: that costs a retry, never a wrong document.
    fn load(
        &self,
        collection: &Collection,
        ids: Vec<DocumentId>,
    ) -> impl Future<Output = Result<Vec<Record>>> + Send;

    /// Returns the current records with these ids. A store whose [`load`](Self::load) can be stale
    /// must override this.
    fn load_current(
        &self,
        collection: &Collection,
        ids: Vec<DocumentId>,
    ) -> impl Future<Output = Result<Vec<Record>>> + Send {
        self.load(collection, ids)
    }

    /// Commits writes, each guarded by the header it was computed from. `Err` means that nothing
    /// was written.
    fn commit(&self, commit: Arc<Commit>) -> impl Future<Output = Result<CommitOutcome>> + Send;

    /// Returns the documents that readers see, ordered by id, after an id.
    fn scan(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Record>>> + Send;

    /// Does the same, but also limits the bytes of all bodies. A page has at least one document if
    /// there is one. The second value says whether there may be more.
    ///
    /// Stores override this to stop reading when the page is full. The default reads one document
    /// at a time.
    fn scan_page(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
        bytes: usize,
    ) -> impl Future<Output = Result<(Vec<Record>, bool)>> + Send {
        async move {
            let (mut page, mut after) = (Vec::new(), after);
            let mut left = bytes;
            while page.len() < limit {
                let Some(record) = self.scan(collection, after, 1).await?.pop() else {
                    return Ok((page, false));
                };
                if !record.fits(page.is_empty(), &mut left) {
                    break;
                }
                after = Some(record.id.clone());
                page.push(record);
            }
            Ok((page, true))
        }
    }

    /// Returns the parked records, ordered by id, after an id.
    fn parked(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Record>>> + Send;

    /// Counts the documents.
    fn count(&self, collection: &Collection) -> impl Future<Output = Result<DocumentCounts>> + Send;

    /// Returns the checkpoint of a projection, which is at the beginning if it never ran.
    fn checkpoint(&self, projection: &Collection) -> impl Future<Output = Result<Checkpoint>> + Send;

    /// Waits until the checkpoint's mark differs from this one, and returns it. An idle wait costs
    /// close to nothing.
    fn advanced(&self, projection: &Collection, from: &Mark) -> impl Future<Output = Result<Mark>> + Send;

    /// Claims or renews the lease on a projection. Returns [`Claim::Theirs`] while another owner's
    /// lease has not ended, by the store's clock.
    fn claim(
        &self,
        projection: &Collection,
        owner: &str,
        lease: Duration,
    ) -> impl Future<Output = Result<Claim>> + Send;

    /// Returns the [generations](Generations) of a collection. If none are recorded, that is the
    /// first one alone.
    fn generations(&self, collection: &Collection) -> impl Future<Output = Result<Generations>> + Send;

    /// Stores the generations of a collection if the stored revision is still `seen`, and returns
    /// whether it did. After an error the outcome is unknown, so read again.
    ///
    /// A change of the live generation takes effect at once for every caller that names the
    /// collection alone. A reader sees either the old generation or the new one. Change feeds
    /// report that [changes are lost](crate::react::FeedItem::Lost), so that all documents are
    /// compared.
    fn put_generations(
        &self,
        collection: &Collection,
        seen: u64,
        next: Generations,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Deletes a [generation](Collection::generation) that is not live: its records, its hidden
    /// collection and its checkpoint. Missing parts are not an error.
    fn drop_generation(&self, generation: &Collection) -> impl Future<Output = Result<()>> + Send;

    /// Releases the lease if this owner holds it.
    fn release(&self, projection: &Collection, owner: &str) -> impl Future<Output = Result<()>> + Send;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(position: u64) -> Header {
        Header { mark: Mark::from_iter([(Partition(0).into(), position)]), parked: None }
    }

    #[test]
    fn a_write_holds_only_on_what_it_was_computed_from() {
        let write = |expected| DocumentWrite {
            expected,
            record: Record { id: DocumentId::new("d").unwrap(), header: header(9), body: None },
        };
        let (first, next) = (write(None), write(Some(header(2))));
        assert!(first.holds(None) && next.holds(Some(&header(2))));
        // The guard rejects an earlier header, a later header and the header this write would
        // store.
        for stored in [None, Some(header(1)), Some(header(3)), Some(header(9))] {
            assert!(!next.holds(stored.as_ref()), "{stored:?}");
        }
        assert!(
            !first.holds(Some(&Header::default())),
            "a record that has folded nothing is there all the same"
        );
    }

    #[test]
    fn a_step_holds_only_where_it_begins() {
        let step = Advance {
            projection: Collection::new("p").unwrap(),
            from: header(2).mark,
            to: Checkpoint { mark: header(5).mark, tally: Tally::default() },
        };
        assert!(step.holds(&header(2).mark));
        for stored in [0, 1, 3, 5, 6] {
            assert!(!step.holds(&header(stored).mark), "{stored}");
        }
    }

    #[test]
    fn only_a_lease_of_others_that_has_not_ended_keeps_one_away() {
        let left = Duration::from_secs(3);
        assert_eq!(Claim::judge(Some(("ann", left)), "bob"), Claim::Theirs { ends_in: left });
        for free in [None, Some(("ann", Duration::ZERO)), Some(("bob", left)), Some(("bob", Duration::ZERO))]
        {
            assert_eq!(Claim::judge(free, "bob"), Claim::Ours, "{free:?}");
        }
    }
}
