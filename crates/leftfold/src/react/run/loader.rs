//! Loads documents for handlers; concurrent requests are read together.

use std::collections::BTreeMap;

use tokio::sync::{mpsc, oneshot};

use crate::error::{Error, Kind, Result};
use crate::event::DocumentId;
use crate::react::store::{DocumentSource, FoundDocument, ReactionStore};

/// The maximum number of documents that are read at once.
const MOST: usize = 500;
/// The approximate number of bytes of documents that are read at once.
pub(crate) const BYTES: usize = 8 << 20;

type Request = (DocumentSource, DocumentId, oneshot::Sender<Result<Option<FoundDocument>>>);

/// Reads current documents, none older than its request.
#[derive(Clone, Debug)]
pub(crate) struct Loader(mpsc::Sender<Request>);

impl Loader {
    /// Creates a loader that reads from a store until its last clone is dropped.
    pub(crate) fn on<S: ReactionStore>(store: S) -> Self {
        let (requests, mut received) = mpsc::channel::<Request>(MOST);
        tokio::spawn(async move {
            let mut batch = Vec::new();
            loop {
                // Yielding below lets more requests join the batch.
                if received.recv_many(&mut batch, MOST).await == 0 {
                    return;
                }
                tokio::task::yield_now().await;
                while batch.len() < MOST
                    && let Ok(another) = received.try_recv()
                {
                    batch.push(another);
                }
                read(&store, std::mem::take(&mut batch)).await;
            }
        });
        Self(requests)
    }

    /// Returns the current document, if it exists.
    pub(crate) async fn load(&self, on: &DocumentSource, id: &DocumentId) -> Result<Option<FoundDocument>> {
        let (answer, answered) = oneshot::channel();
        let stopped = || Error::new(Kind::Stopped, "reading a document: the reactor has stopped");
        self.0.send((on.clone(), id.clone(), answer)).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }
}

async fn read<S: ReactionStore>(store: &S, batch: Vec<Request>) {
    let mut by_place: BTreeMap<DocumentSource, Vec<(DocumentId, oneshot::Sender<_>)>> = BTreeMap::new();
    for (on, id, answer) in batch {
        by_place.entry(on).or_default().push((id, answer));
    }
    for (on, requests) in by_place {
        let mut waiting: BTreeMap<DocumentId, Vec<oneshot::Sender<_>>> = BTreeMap::new();
        for (id, answer) in requests {
            waiting.entry(id).or_default().push(answer);
        }
        while !waiting.is_empty() {
            let ids = waiting.keys().cloned().collect();
            let (mut found, left) = match store.current_documents(&on, ids, BYTES).await {
                Ok(found) => (found.documents, found.left),
                Err(error) => {
                    for answer in waiting.into_values().flatten() {
                        let _ = answer.send(Err(Error::new(error.kind(), error.to_string())));
                    }
                    break;
                }
            };
            let later = left.into_iter().filter_map(|id| waiting.remove_entry(&id)).collect();
            // An id that is neither left nor found has no document.
            for (id, answers) in std::mem::replace(&mut waiting, later) {
                let at = found.iter().position(|document| document.id == id);
                let document = at.map(|at| found.swap_remove(at));
                for answer in answers {
                    // A handler that has ended no longer waits.
                    let _ = answer.send(Ok(document.clone()));
                }
            }
        }
    }
}
