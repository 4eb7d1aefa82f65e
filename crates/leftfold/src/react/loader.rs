//! Documents for handlers: those that several ask for at the same time are read together.

use std::collections::BTreeMap;

use tokio::sync::{mpsc, oneshot};

use super::store::{On, Reactive};
use crate::error::{Error, Kind, Result};
use crate::event::DocumentId;
use crate::json::Json;

/// How many documents are read at once.
const MOST: usize = 500;

type Asked = (On, DocumentId, oneshot::Sender<Result<Option<Json>>>);

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
    pub(super) async fn load(&self, on: &On, id: &DocumentId) -> Result<Option<Json>> {
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
        let mut ids: Vec<_> = asked.iter().map(|(id, _)| id.clone()).collect();
        ids.sort();
        ids.dedup();
        match store.current_documents(&on, ids).await {
            Ok(found) => {
                let found: BTreeMap<_, _> = found.into_iter().collect();
                for (id, answer) in asked {
                    // Who does not wait any more need not hear it.
                    let _ = answer.send(Ok(found.get(&id).cloned()));
                }
            }
            Err(error) => {
                for (_, answer) in asked {
                    let _ = answer.send(Err(Error::new(error.kind(), error.to_string())));
                }
            }
        }
    }
}
