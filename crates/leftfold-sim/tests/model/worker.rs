//! A worker: it claims, reads the checkpoint, folds, commits, and handles the response as the
//! engine does.

use leftfold::Verdict;

use crate::store::{Answer, Commit, Document, Store, lane, mark};

/// The memory of a worker, or `None` while it does not work.
pub(crate) type Worker = Option<Run>;

/// The work of one worker since its claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Run {
    /// The epoch of its claim.
    pub(crate) epoch: u64,
    /// The checkpoint, once it is read.
    pub(crate) checkpoint: Option<u64>,
    /// The documents, once they are loaded.
    pub(crate) documents: Vec<Option<Document>>,
    /// The commit that waits for a response.
    pub(crate) sent: Option<Commit>,
}

impl Run {
    pub(crate) fn new(store: &Store) -> Self {
        Self { epoch: store.epoch, documents: vec![None; store.documents.len()], ..Self::default() }
    }

    pub(crate) fn lacks_documents(&self) -> bool {
        self.documents.iter().any(Option::is_none)
    }

    /// Loads the current state of the documents it does not have.
    pub(crate) fn load(&mut self, store: &Store) {
        for (document, stored) in self.documents.iter_mut().zip(&store.documents) {
            document.get_or_insert(*stored);
        }
    }

    /// Returns its checkpoint if it can continue: everything is read, and no commit is in flight.
    pub(crate) fn ready_at(&self) -> Option<u64> {
        self.checkpoint.filter(|_| !self.lacks_documents() && self.sent.is_none())
    }

    /// Folds the events after its checkpoint up to `to` into each document, by the engine's rule.
    pub(crate) fn fold(&self, writer: usize, to: u64) -> Commit {
        let from = self.checkpoint.unwrap_or_default();
        let changes = self.documents.iter().flatten().map(|was| {
            let (mut mark, mut events) = (mark(was.mark), was.events);
            for event in from + 1..=to {
                if mark.judge(&lane(), event) == Verdict::Apply {
                    mark.advance(&lane(), event);
                    events = events * 10 + event;
                }
            }
            let will = Document { mark: mark.get(&lane()), events };
            (will != *was).then_some((*was, will))
        });
        Commit {
            writer,
            epoch: self.epoch,
            from,
            to,
            writes: changes.collect(),
            tried: 0,
            refused: Vec::new(),
        }
    }
}

/// Handles the response to a worker's commit.
pub(crate) fn settle(worker: &mut Worker, answer: Answer) {
    let Some(run) = worker else { return };
    let Some(commit) = run.sent.take() else { return };
    match answer {
        Answer::Applied => {
            run.checkpoint = Some(commit.to);
            for (document, write) in run.documents.iter_mut().zip(&commit.writes) {
                *document = write.map(|(_, will)| will).or(*document);
            }
        }
        // Another worker has taken over: drop everything.
        Answer::Replaced => *worker = None,
        // Reload the changed documents and fold them again from the same checkpoint.
        Answer::Conflict(refused) => refused.into_iter().for_each(|document| run.documents[document] = None),
    }
}
