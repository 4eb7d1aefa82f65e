//! Documents: where read models are kept, each with the mark of what it has folded.
//!
//! The trait asks for nothing but conditional writes of single documents. Stores with transactions commit
//! a batch as one; the others write documents first and the checkpoint last, and the guards make up for it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

mod collection;
mod generations;

pub use collection::Collection;
pub use generations::{Generation, Generations, Switching};

use crate::error::{Invalid, Result};
use crate::event::{DocumentId, EventKind, Partition, Position, Revision, StreamId};
use crate::json::Json;
use crate::mark::Mark;

/// The longest body of a document, in bytes. A fold that makes a longer one has failed.
pub const MAX_BODY_BYTES: usize = 16_000_000;

/// The deepest nesting of a document. Readers wrap documents in lists and messages, and all of them can read this much.
pub const MAX_BODY_DEPTH: usize = 100;

/// Why a document (or a stream, where events are not routed by it) is set aside, by reference: the events
/// themselves stay in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// The stream of the event that failed.
    pub stream: StreamId,
    /// Its revision.
    pub revision: Revision,
    /// Its type.
    pub kind: EventKind,
    /// The partition it is in.
    pub partition: Partition,
    /// Its place there.
    pub position: Position,
    /// What went wrong.
    pub error: String,
    /// How often it was tried.
    pub attempts: u32,
    /// Since when.
    pub since: Timestamp,
    /// Everything up to here is folded or concerns others.
    pub from: Mark,
    /// The last events set aside.
    pub through: Mark,
    /// How many events wait, the failing one included.
    pub waiting: u64,
    /// Of a document: it must be folded anew from its first event, as it holds events that come after the failing one.
    /// Of a stream: it is being taken up again, so that some documents hold its events already.
    #[serde(default)]
    pub anew: bool,
}

#[cfg(test)]
impl Parked {
    /// What is parked for the seventh event of the first partition, and has folded nothing.
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

/// What guards a document: a write names the header it was computed from, and happens only if that is still
/// the one stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// What it has folded.
    pub mark: Mark,
    /// Whether and why it is set aside.
    pub parked: Option<Box<Parked>>,
}

/// A document as stored. One without a body is not there for readers: it was deleted, or its first event
/// failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its id.
    pub id: DocumentId,
    /// What guards it.
    pub header: Header,
    /// What readers see.
    pub body: Option<Json>,
}

impl Record {
    /// Takes the body's length from the bytes left in a page. The first record of a page always fits.
    pub fn fits(&self, is_first: bool, left: &mut usize) -> bool {
        let length = self.body.as_ref().map_or(0, |body| body.as_str().len());
        let fits = is_first || length <= *left;
        *left = left.saturating_sub(length);
        fits
    }
}

/// A guarded write of one document.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// The header it was computed from; `None` if there was no record.
    pub expected: Option<Header>,
    /// What is to be stored.
    pub record: Record,
}

impl Write {
    /// The guard: whether what is stored, if anything, still is what this was computed from. A store decides that and
    /// writes in one step.
    pub fn holds(&self, stored: Option<&Header>) -> bool {
        self.expected.as_ref() == stored
    }
}

/// The guarded writes to one collection.
#[derive(Clone, Debug)]
pub struct Changes {
    /// The collection.
    pub collection: Collection,
    /// At most one write per document.
    pub writes: Vec<Write>,
}

/// How far a projection is: a mark with the partitions as lanes, and what it has counted on the way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checkpoint {
    /// Up to where every event is folded, set aside or of no concern.
    pub mark: Mark,
    /// What was counted up to there.
    pub tally: Tally,
}

/// What a projection has counted since it began. Kept with the checkpoint, so that it is exact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// Events read.
    pub events: u64,
    /// Applications of an event to a document.
    pub applied: u64,
    /// Applications that were there already.
    pub skipped: u64,
    /// Events of types the projection does not know.
    pub ignored: u64,
    /// Applications left for a parked document or stream.
    pub set_aside: u64,
    /// Folds tried again.
    pub retried: u64,
    /// Documents and streams parked.
    pub parked: u64,
    /// Documents refolded because somebody else had changed them.
    pub conflicts: u64,
    /// The last thing that went wrong.
    pub last_error: Option<String>,
}

impl Tally {
    /// Adds what else was counted, after this.
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

/// A step of a checkpoint, guarded by where it was.
#[derive(Clone, Debug)]
pub struct Advance {
    /// The projection.
    pub projection: Collection,
    /// Where it must be now.
    pub from: Mark,
    /// Where it goes, with what was counted.
    pub to: Checkpoint,
}

impl Advance {
    /// The guard: whether the checkpoint still stands where this begins. One that was never stored stands at the
    /// beginning.
    pub fn holds(&self, stored: &Mark) -> bool {
        self.from == *stored
    }
}

/// What is to be written together.
///
/// A store with transactions writes the checkpoint first and then all documents, or nothing. Another writes each
/// document under its own guard, collection after collection as given, going on to the next, and to the checkpoint
/// at last, only if all guards held so far.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// The step of the checkpoint, if the writes belong to one.
    pub advance: Option<Advance>,
    /// The writes. Streams that are set aside come before the documents that were folded without them.
    pub changes: Vec<Changes>,
}

impl Commit {
    /// What every store refuses to write.
    pub fn check(&self) -> Result<(), Invalid> {
        for Changes { collection, writes } in &self.changes {
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

/// What became of a commit.
#[derive(Debug)]
#[must_use = "only `Applied` means that it is stored"]
pub enum Outcome {
    /// It is stored, durably.
    Applied,
    /// Guards did not hold. In a store with transactions nothing is written; elsewhere the writes that are
    /// not named are, and the checkpoint is not.
    Conflict(Conflict),
    /// It can't be told whether it was written, in whole or in part, or will be later. Repeat the same commit:
    /// its guards make that harmless.
    Unknown(crate::Error),
}

/// Which guards did not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflict {
    /// The checkpoint was not where it was expected: somebody else does this work.
    pub checkpoint: bool,
    /// These documents had other headers. May be empty where the checkpoint conflicts.
    pub documents: Vec<(Collection, DocumentId)>,
}

/// Who works on a projection. A lease avoids double work; nothing depends on it being right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The work is ours until the lease ends.
    Ours,
    /// Somebody else has it for so long, if they don't renew it.
    Theirs {
        /// When to ask again.
        ends_in: Duration,
    },
}

impl Claim {
    /// The rule: the work is free if nobody holds it, if the lease has ended, or to whom holds it already. `lease` is
    /// who took it last, and how much of that is left.
    pub fn judge(lease: Option<(&str, Duration)>, owner: &str) -> Self {
        match lease {
            Some((other, ends_in)) if other != owner && !ends_in.is_zero() => Self::Theirs { ends_in },
            _ => Self::Ours,
        }
    }
}

/// How many documents a collection has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Documents that readers see.
    pub documents: u64,
    /// Parked ones, seen or not.
    pub parked: u64,
    /// Since when the first of these is, to the second.
    pub parked_since: Option<Timestamp>,
}

/// A store of documents and of the checkpoints that say how far they are.
///
/// Wherever a collection is named, its name alone means the [live](Generations::live) generation as of the call, and a
/// [generation](Collection::generation) means that one, whatever is live. [`Collection::stored`] says which records are meant.
pub trait Documents: Send + Sync + 'static {
    /// Makes the collection, or the generation, and its [hidden one](Collection::streams), if they are not there yet.
    fn prepare(&self, collection: &Collection) -> impl Future<Output = Result<()>> + Send;

    /// The records with these ids, in any order; those that don't exist are left out.
    ///
    /// It may answer with what was true a moment ago: that costs a retry, never a wrong document.
    fn load(
        &self,
        collection: &Collection,
        ids: Vec<DocumentId>,
    ) -> impl Future<Output = Result<Vec<Record>>> + Send;

    /// The same, as they are now. A store whose loads can be behind must read differently here.
    fn load_current(
        &self,
        collection: &Collection,
        ids: Vec<DocumentId>,
    ) -> impl Future<Output = Result<Vec<Record>>> + Send {
        self.load(collection, ids)
    }

    /// Writes guarded by what each was computed from. `Err` means that nothing was written.
    fn commit(&self, commit: Arc<Commit>) -> impl Future<Output = Result<Outcome>> + Send;

    /// The documents that readers see, by id, after an id.
    fn scan(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Record>>> + Send;

    /// The same, within a number of bytes of bodies as well, but always one document if there is one. Answers with
    /// whether there may be more.
    ///
    /// Stores override this to stop reading where the page is full. By default it reads one document at a time.
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

    /// The parked records, by id, after an id.
    fn parked(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Record>>> + Send;

    /// How many documents there are.
    fn count(&self, collection: &Collection) -> impl Future<Output = Result<Counts>> + Send;

    /// How far a projection is; at the beginning if it never ran.
    fn checkpoint(&self, projection: &Collection) -> impl Future<Output = Result<Checkpoint>> + Send;

    /// Waits until the checkpoint's mark is another than this one, and answers it. An idle wait costs close to nothing.
    fn advanced(&self, projection: &Collection, from: &Mark) -> impl Future<Output = Result<Mark>> + Send;

    /// Takes or renews the lease on a projection, unless another owner's has not ended, by the store's clock.
    fn claim(
        &self,
        projection: &Collection,
        owner: &str,
        lease: Duration,
    ) -> impl Future<Output = Result<Claim>> + Send;

    /// What is known of the [generations](Generations) of a collection: the first one alone, if nothing is.
    fn generations(&self, collection: &Collection) -> impl Future<Output = Result<Generations>> + Send;

    /// Keeps what is known of the generations of a collection, if it still has the revision that was seen. Answers whether it
    /// did; on an error nobody knows, so look again.
    ///
    /// If another one becomes live, then at once for all who name the collection alone: whoever reads sees the one before or
    /// the one after, and feeds of changes say that [changes are lost](crate::react::Told::Lost), so that all documents are
    /// compared.
    fn put_generations(
        &self,
        collection: &Collection,
        seen: u64,
        next: Generations,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Removes a [generation](Collection::generation) that is not live: its records, its hidden collection and its
    /// checkpoint. What is not there is no error.
    fn drop_generation(&self, generation: &Collection) -> impl Future<Output = Result<()>> + Send;

    /// Gives the lease back, if it is this owner's.
    fn release(&self, projection: &Collection, owner: &str) -> impl Future<Output = Result<()>> + Send;
}

/// What holds both the log and the documents. Cloning gives another handle to the same store.
pub trait Store: crate::log::Append + Documents + Clone {}

impl<S: crate::log::Append + Documents + Clone> Store for S {}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(position: u64) -> Header {
        Header { mark: Mark::from_iter([(Partition(0).into(), position)]), parked: None }
    }

    #[test]
    fn a_write_holds_only_on_what_it_was_computed_from() {
        let write = |expected| Write {
            expected,
            record: Record { id: DocumentId::new("d").unwrap(), header: header(9), body: None },
        };
        let (first, next) = (write(None), write(Some(header(2))));
        assert!(first.holds(None) && next.holds(Some(&header(2))));
        // Not on what came before, nor after, nor on what it would itself lead to.
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
