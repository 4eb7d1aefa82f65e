//! Guarded writes, and the outcome of a commit.

use serde::{Deserialize, Serialize};

use super::{Collection, Header, MAX_BODY_BYTES, Record};
use crate::error::Invalid;
use crate::event::DocumentId;
use crate::mark::Mark;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Partition;

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
}
