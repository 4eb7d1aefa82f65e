//! The stored data, and the guards of commits: the engine's own, and wrong ones.

use std::iter::successors;
use std::time::Duration;

use leftfold::documents::{Advance, Checkpoint, Claim, DocumentWrite, Header, Record, Tally};
use leftfold::{Collection, DocumentId, Lane, Mark, Partition};

/// The condition under which a write happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// The engine's guard: the header and the checkpoint are still those that the write was
    /// computed from.
    Position,
    /// The half of it that checks the checkpoint.
    CheckpointAlone,
    /// The half of it that checks the documents.
    DocumentsAlone,
    /// The writer's epoch is that of the lease, which has not ended.
    Epoch,
    /// The writer holds the lease, which has not ended.
    Owner,
}

/// A document that lists the events folded into it. A document without events is not stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Document {
    /// The position in its mark.
    pub(crate) mark: u64,
    /// The events as digits, such as 12 for the first and then the second. This is compact, because
    /// there are millions of documents.
    pub(crate) events: u64,
}

impl Document {
    pub(crate) fn has(self, event: u64) -> bool {
        let mut rests = successors(Some(self.events), |rest| (*rest > 0).then_some(rest / 10));
        rests.any(|rest| rest % 10 == event)
    }

    /// Returns whether it has each event up to its mark once, and nothing else.
    pub(crate) fn is_in_order(self) -> bool {
        self.events == (1..=self.mark).fold(0, |digits, event| digits * 10 + event)
    }

    fn header(self) -> Option<Header> {
        (self.mark > 0).then(|| Header { mark: mark(self.mark), parked: None })
    }
}

/// The last lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lease {
    pub(crate) owner: usize,
    pub(crate) ended: bool,
}

/// A commit in flight, with the store's progress on it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Commit {
    pub(crate) writer: usize,
    pub(crate) epoch: u64,
    /// The checkpoint it starts from.
    pub(crate) from: u64,
    /// The checkpoint it leads to.
    pub(crate) to: u64,
    /// For each changed document, the loaded and the new state.
    pub(crate) writes: Vec<Option<(Document, Document)>>,
    /// The number of attempted writes, if they are not one transaction.
    pub(crate) tried: usize,
    /// The documents whose guards did not hold.
    pub(crate) refused: Vec<usize>,
}

impl Commit {
    /// Returns the same commit, to be sent again.
    pub(crate) fn again(&self) -> Self {
        Self { tried: 0, refused: Vec::new(), ..self.clone() }
    }

    /// Returns the engine's own value for a document's write, if there is one.
    fn write(&self, document: usize) -> Option<DocumentWrite> {
        let (was, will) = self.writes[document]?;
        let id = DocumentId::new("list").unwrap();
        let record = Record { id, header: will.header().unwrap_or_default(), body: None };
        Some(DocumentWrite { expected: was.header(), record })
    }

    /// Returns the engine's own value for the checkpoint's advance.
    fn advance(&self) -> Advance {
        Advance {
            projection: Collection::new("lists").unwrap(),
            from: mark(self.from),
            to: Checkpoint { mark: mark(self.to), tally: Tally::default() },
        }
    }
}

/// The store's response to a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Applied,
    /// The checkpoint has moved.
    Replaced,
    /// These documents have changed.
    Conflict(Vec<usize>),
}

/// The store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Store {
    pub(crate) checkpoint: u64,
    pub(crate) documents: Vec<Document>,
    pub(crate) lease: Option<Lease>,
    /// The number of claims. It counts only where a guard depends on it.
    pub(crate) epoch: u64,
    /// `true` if a mark or the checkpoint has ever decreased.
    pub(crate) went_back: bool,
}

impl Store {
    pub(crate) fn new(documents: usize) -> Self {
        Self {
            checkpoint: 0,
            documents: vec![Document::default(); documents],
            lease: None,
            epoch: 0,
            went_back: false,
        }
    }

    /// Returns whether this worker may take or renew the lease.
    pub(crate) fn is_free_for(&self, worker: usize) -> bool {
        let left = |lease: &Lease| if lease.ended { Duration::ZERO } else { Duration::from_secs(1) };
        let taken = self.lease.as_ref().map(|lease| (name(lease.owner), left(lease)));
        Claim::judge(taken, name(worker)) == Claim::Ours
    }

    pub(crate) fn is_held_by(&self, worker: usize) -> bool {
        self.lease == Some(Lease { owner: worker, ended: false })
    }

    /// Does everything in one transaction, or nothing.
    pub(crate) fn commit(&mut self, guard: Guard, commit: &Commit) -> Answer {
        if !self.lets_advance(guard, commit) {
            return Answer::Replaced;
        }
        let refused: Vec<_> =
            (0..self.documents.len()).filter(|document| !self.lets_write(guard, commit, *document)).collect();
        if !refused.is_empty() {
            return Answer::Conflict(refused);
        }
        for document in 0..self.documents.len() {
            self.write(commit, document);
        }
        self.advance(commit);
        Answer::Applied
    }

    /// Does the next write of a commit: document by document, and the checkpoint last if all guards
    /// held. Returns `None` if there is more to do.
    pub(crate) fn step(&mut self, guard: Guard, commit: &mut Commit) -> Option<Answer> {
        let documents = self.documents.len();
        while commit.writes.get(commit.tried).is_some_and(Option::is_none) {
            commit.tried += 1;
        }
        if commit.tried == documents {
            if !self.lets_advance(guard, commit) {
                return Some(Answer::Replaced);
            }
            self.advance(commit);
            return Some(Answer::Applied);
        }
        if self.lets_write(guard, commit, commit.tried) {
            self.write(commit, commit.tried);
        } else {
            commit.refused.push(commit.tried);
        }
        commit.tried += 1;
        let rest = commit.writes[commit.tried..].iter().flatten().count();
        (rest == 0 && !commit.refused.is_empty()).then(|| Answer::Conflict(commit.refused.clone()))
    }

    fn lets_advance(&self, guard: Guard, commit: &Commit) -> bool {
        match guard {
            Guard::Position | Guard::CheckpointAlone => commit.advance().holds(&mark(self.checkpoint)),
            Guard::DocumentsAlone => true,
            Guard::Epoch | Guard::Owner => self.lets_in(guard, commit),
        }
    }

    fn lets_write(&self, guard: Guard, commit: &Commit, document: usize) -> bool {
        let Some(write) = commit.write(document) else { return true };
        match guard {
            Guard::Position | Guard::DocumentsAlone => {
                write.holds(self.documents[document].header().as_ref())
            }
            Guard::CheckpointAlone => true,
            Guard::Epoch | Guard::Owner => self.lets_in(guard, commit),
        }
    }

    fn lets_in(&self, guard: Guard, commit: &Commit) -> bool {
        let fits = |lease: &Lease| match guard {
            Guard::Epoch => commit.epoch == self.epoch,
            _ => commit.writer == lease.owner,
        };
        self.lease.as_ref().is_some_and(|lease| !lease.ended && fits(lease))
    }

    fn write(&mut self, commit: &Commit, document: usize) {
        if let Some((_, will)) = commit.writes[document] {
            self.went_back |= will.mark < self.documents[document].mark;
            self.documents[document] = will;
        }
    }

    fn advance(&mut self, commit: &Commit) {
        self.went_back |= commit.to < self.checkpoint;
        self.checkpoint = commit.to;
    }
}

/// Returns the lane of all events.
pub(crate) fn lane() -> Lane {
    Partition(0).into()
}

/// Returns the mark at this position.
pub(crate) fn mark(position: u64) -> Mark {
    Mark::from_iter([(lane(), position)])
}

fn name(worker: usize) -> &'static str {
    ["ann", "bob", "cid"][worker]
}
