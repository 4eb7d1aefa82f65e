//! Values and checks that these tests share.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Happened, Notes, Seen};
use crate::scripted::{Call, Scripted};
use leftfold::documents::{Advance, Checkpoint, Commit, CommitOutcome};
use leftfold::fold::FoldOptions;
use leftfold::{Backoff, Collection, Documents, Event, Lane, Memory, Partition, Projection, Route, fold};
use tokio::sync::{oneshot, watch};

pub(crate) fn quick() -> FoldOptions {
    FoldOptions {
        retry: Backoff::default().first(Duration::from_millis(1)).limit(3),
        ..FoldOptions::default()
    }
}

/// Fails if the future takes far longer than it ever should, so that a hang is noticed.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("it should long have happened")
}

/// Notes that report the number of events they were given.
#[derive(Clone)]
pub(crate) struct Telling(pub(crate) Notes, Arc<watch::Sender<usize>>);

impl Telling {
    pub(crate) fn new(notes: Notes) -> Self {
        Self(notes, Arc::new(watch::Sender::new(0)))
    }

    pub(crate) async fn has_folded(&self, count: usize) {
        soon(self.1.subscribe().wait_for(|folded| *folded >= count)).await.unwrap();
    }
}

impl Projection for Telling {
    type Event = Happened;
    type Document = Seen;

    fn name(&self) -> &str {
        self.0.name()
    }

    fn route(&self) -> Route<Happened> {
        self.0.route()
    }

    fn upcast(&self, event: Event) -> Event {
        self.0.upcast(event)
    }

    fn fold(&self, seen: Option<Seen>, event: &Event<Happened>) -> Result<Option<Seen>, fold::Error> {
        let folded = self.0.fold(seen, event);
        self.1.send_modify(|folded| *folded += 1);
        folded
    }
}

pub(crate) fn by_stream() -> Collection {
    Collection::new("by_stream").unwrap()
}

/// Holds the next commit until the returned sender is used.
pub(crate) fn hold_commit(store: &Scripted) -> oneshot::Sender<()> {
    let (release, held) = oneshot::channel();
    store.before(Call::Commit, async move { held.await.unwrap() });
    release
}

/// Sets a checkpoint, as in a store that writes it last and has not yet, or has lost it.
pub(crate) async fn put_checkpoint(store: &Memory, projection: &str, position: u64) {
    let projection = Collection::new(projection).unwrap();
    let from = store.checkpoint(&projection).await.unwrap().mark;
    let mark = [(Lane::from(Partition(0)), position)].into_iter().collect();
    let to = Checkpoint { mark, ..Checkpoint::default() };
    let commit = Commit { advance: Some(Advance { projection, from, to }), changes: vec![] };
    assert!(matches!(store.commit(commit.into()).await.unwrap(), CommitOutcome::Applied));
}
