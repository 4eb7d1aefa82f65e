//! A worker: claims the work, reads where it is, folds on, commits, and deals with the answer as the engine's does.

use leftfold::Verdict;

use crate::store::{Answer, Commit, Document, Store, lane, mark};

/// What a worker has in memory; nothing while it does no work.
pub(crate) type Worker = Option<Run>;

/// The work of one worker since it claimed it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Run {
    /// The epoch it began with.
    pub(crate) epoch: u64,
    /// The checkpoint, once it is read.
    pub(crate) checkpoint: Option<u64>,
    /// The documents, once they are loaded.
    pub(crate) documents: Vec<Option<Document>>,
    /// What it waits for the answer to.
    pub(crate) sent: Option<Commit>,
}

impl Run {
    pub(crate) fn new(store: &Store) -> Self {
        Self { epoch: store.epoch, documents: vec![None; store.documents.len()], ..Self::default() }
    }

    pub(crate) fn lacks_documents(&self) -> bool {
        self.documents.iter().any(Option::is_none)
    }

    /// Loads the documents it does not have, as they are now.
    pub(crate) fn load(&mut self, store: &Store) {
        for (document, stored) in self.documents.iter_mut().zip(&store.documents) {
            document.get_or_insert(*stored);
        }
    }

    /// Where it can go on from: everything is read, and nothing is on its way.
    pub(crate) fn ready_at(&self) -> Option<u64> {
        self.checkpoint.filter(|_| !self.lacks_documents() && self.sent.is_none())
    }

    /// Folds the events after its checkpoint up to this one into each document, by the engine's rule.
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

/// What a worker does with the answer to its commit.
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
        // Somebody else does this work: all is forgotten.
        Answer::Replaced => *worker = None,
        // What somebody else has changed is loaded and folded anew, from the same checkpoint on.
        Answer::Conflict(refused) => refused.into_iter().for_each(|document| run.documents[document] = None),
    }
}
