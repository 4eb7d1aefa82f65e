//! Documents for handlers: those that several ask for at the same time are read together.

use std::collections::BTreeMap;

use tokio::sync::{mpsc, oneshot};

use super::store::{FoundDocument, On, Reactive};
use crate::error::{Error, Kind, Result};
use crate::event::DocumentId;

/// How many documents are read at once.
const MOST: usize = 500;
/// About how many bytes of documents are read at once.
pub(super) const BYTES: usize = 8 << 20;

type Asked = (On, DocumentId, oneshot::Sender<Result<Option<FoundDocument>>>);

/// Reads documents as they are, not earlier than they are asked for.
#[derive(Clone, Debug)]
pub(super) struct Loader(mpsc::Sender<Asked>);

impl Loader {
    /// A loader that reads from a store for as long as somebody has it.
    pub(super) fn on<S: Reactive>(store: S) -> Self {
        let (ask, mut asked) = mpsc::channel::<Asked>(MOST);
        tokio::spawn(async move {
            let mut batch = Vec::new();
            loop {
                // Those who are about to ask get the chance to.
                if asked.recv_many(&mut batch, MOST).await == 0 {
                    return;
                }
                tokio::task::yield_now().await;
                while batch.len() < MOST
                    && let Ok(another) = asked.try_recv()
                {
                    batch.push(another);
                }
                read(&store, std::mem::take(&mut batch)).await;
            }
        });
        Self(ask)
    }

    /// A document as it is now.
    pub(super) async fn load(&self, on: &On, id: &DocumentId) -> Result<Option<FoundDocument>> {
        let (answer, answered) = oneshot::channel();
        let stopped = || Error::new(Kind::Stopped, "reading a document: the reactor has ended");
        self.0.send((on.clone(), id.clone(), answer)).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }
}

async fn read<S: Reactive>(store: &S, batch: Vec<Asked>) {
    let mut by_place: BTreeMap<On, Vec<(DocumentId, oneshot::Sender<_>)>> = BTreeMap::new();
    for (on, id, answer) in batch {
        by_place.entry(on).or_default().push((id, answer));
    }
    for (on, asked) in by_place {
        let mut waiting: BTreeMap<DocumentId, Vec<oneshot::Sender<_>>> = BTreeMap::new();
        for (id, answer) in asked {
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
            // An id that is not left, and was not found, has no document.
            for (id, answers) in std::mem::replace(&mut waiting, later) {
                let at = found.iter().position(|document| document.id == id);
                let document = at.map(|at| found.swap_remove(at));
                for answer in answers {
                    // A handler that has ended does not wait any more.
                    let _ = answer.send(Ok(document.clone()));
                }
            }
        }
    }
}
