//! Documents without events, on a store that can't be reached at the worst moments. A caller that
//! is told that nothing was written can rely on it, and other writers do not prevent a write.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leftfold::content::{
    ContentWrite, Contents, Operated, Operation, OperationId, Stored, Versioned, WriteAnswer, Wrote,
};
use leftfold::react::ExternalCollection;
use leftfold::{Backoff, DocumentId, Error, Kind, Memory, Result, delegate};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

/// The fate of a call that writes.
#[derive(Clone, Copy)]
enum Fate {
    /// The write succeeds.
    Fine,
    /// The write succeeds, but the answer is lost.
    Untold,
    /// The write succeeds, the answer is lost, and another writer writes.
    UntoldThenOther,
    /// Another writer was faster.
    Late,
    /// The store can't be reached.
    Down,
}

/// A store whose calls meet these fates in order, the last one forever. Each call takes a
/// millisecond.
#[derive(Clone)]
struct Moody {
    inner: Memory,
    fates: Arc<Mutex<VecDeque<Fate>>>,
}

impl Moody {
    fn new(fates: impl IntoIterator<Item = Fate>) -> Self {
        Self { inner: Memory::default(), fates: Arc::new(Mutex::new(fates.into_iter().collect())) }
    }

    fn fate(&self) -> Fate {
        let mut fates = self.fates.lock().unwrap();
        let last = fates.front().copied();
        (if fates.len() > 1 { fates.pop_front() } else { last }).unwrap_or(Fate::Fine)
    }

    async fn meets<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let fate = self.fate();
        sleep(Duration::from_millis(1)).await;
        if matches!(fate, Fate::Down) {
            return Err(Error::new(Kind::Unavailable, "can't reach it"));
        }
        if matches!(fate, Fate::Late) {
            self.other().await;
        }
        let answer = call.await;
        if matches!(fate, Fate::UntoldThenOther) {
            self.other().await;
        }
        if matches!(fate, Fate::Untold | Fate::UntoldThenOther) {
            return Err(Error::new(Kind::Unknown, "lost it"));
        }
        answer
    }

    /// Another writer adds a hundred.
    async fn other(&self) {
        let others = Versioned::<Thing, _>::new(self.inner.clone(), "things").await.unwrap();
        others.change("a", more(100)).await.unwrap();
    }
}

impl Contents for Moody {
    delegate!(inner: prepare_contents);

    async fn contents(&self, collection: &ExternalCollection, ids: Vec<DocumentId>) -> Result<Vec<Stored>> {
        sleep(Duration::from_millis(1)).await;
        self.inner.contents(collection, ids).await
    }

    async fn write_contents(
        &self,
        collection: &ExternalCollection,
        writes: Arc<[ContentWrite]>,
    ) -> Result<Vec<Wrote>> {
        self.meets(self.inner.write_contents(collection, writes)).await
    }

    async fn operate(
        &self,
        collection: &ExternalCollection,
        operations: Arc<[(DocumentId, Operation)]>,
    ) -> Result<Vec<Operated>> {
        self.meets(self.inner.operate(collection, operations)).await
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Thing {
    n: i64,
}

fn more(than: i64) -> impl FnMut(Option<Thing>) -> Result<Option<Thing>> {
    move |thing| Ok(Some(Thing { n: thing.map_or(0, |thing| thing.n) + than }))
}

fn increment(number: u64) -> Operation {
    Operation::new(OperationId::new(number).unwrap()).increment("n", 1).unwrap()
}

async fn things(store: &Moody) -> Versioned<Thing, Moody> {
    let retry = Backoff::default().first(Duration::from_millis(5)).limit(2);
    Versioned::new(store.clone(), "things").await.unwrap().retry(retry)
}

async fn n(store: &Moody) -> Option<i64> {
    let things = Versioned::<Thing, _>::new(store.inner.clone(), "things").await.unwrap();
    things.get("a").await.unwrap().map(|current| current.document.n)
}

/// Regression: the caller got the last of several errors, which said that nothing was written.
#[tokio::test(start_paused = true)]
async fn what_may_be_written_is_not_said_not_to_be() {
    let store = Moody::new([Fate::Untold, Fate::Down]);
    let error = things(&store).await.insert("a", &Thing { n: 1 }).await.unwrap_err();
    assert_eq!((error.kind(), n(&store).await), (Kind::Unknown, Some(1)), "{error}");

    let store = Moody::new([Fate::Fine, Fate::Untold, Fate::Down]);
    let things = things(&store).await;
    assert!(matches!(things.insert("a", &Thing { n: 1 }).await.unwrap(), WriteAnswer::Applied(_)));
    let error = things.operate("a", increment(1)).await.unwrap_err();
    assert_eq!((error.kind(), n(&store).await), (Kind::Unknown, Some(2)), "{error}");

    let store = Moody::new([Fate::Down]);
    let error = self::things(&store).await.insert("a", &Thing { n: 1 }).await.unwrap_err();
    assert_eq!((error.kind(), n(&store).await), (Kind::Unavailable, None), "{error}");
    let error = self::things(&store).await.operate("a", increment(1)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
}

/// A large write is split into pieces that are written separately, so another piece may have been
/// written.
#[tokio::test(start_paused = true)]
async fn what_other_pieces_may_have_written_is_not_said_not_to_be() {
    let one = Thing { n: 1 };
    let names: Vec<_> = (0..Moody::PIECE).map(|number| format!("d{number}")).collect();
    let writes = || names.iter().map(|name| (name.as_str(), None, &one)).chain([("a", None, &one)]);
    let store = Moody::new([Fate::Down]);
    let error = things(&store).await.write_all(writes().take(Moody::PIECE)).await.unwrap_err();
    assert_eq!((error.kind(), n(&store).await), (Kind::Unavailable, None), "{error}");
    for (first, second) in [(Fate::Fine, Fate::Down), (Fate::Down, Fate::Fine)] {
        let store = Moody::new([first, second]);
        let error = things(&store).await.retry(Backoff::never()).write_all(writes()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unknown, "{error}");
    }
}

/// The same for many writes, if some are written before others are retried.
#[tokio::test(start_paused = true)]
async fn what_is_written_in_part_is_not_said_not_to_be() {
    let store = Moody::new([Fate::Fine, Fate::Fine, Fate::Fine, Fate::Down]);
    let things = things(&store).await;
    assert!(matches!(things.insert("b", &Thing { n: 1 }).await.unwrap(), WriteAnswer::Applied(_)));
    things.operate("b", increment(1)).await.unwrap();
    let from = things.get("b").await.unwrap().unwrap().version;
    let (one, three) = (Thing { n: 1 }, Thing { n: 3 });
    let error = things.write_all([("a", None, &one), ("b", Some(from), &three)]).await.unwrap_err();
    assert_eq!((error.kind(), n(&store).await), (Kind::Unknown, Some(1)), "{error}");
}

/// The same for changes, which other writers may have built on.
#[tokio::test(start_paused = true)]
async fn a_change_that_may_be_made_is_not_said_not_to_be() {
    for then in [Fate::Down, Fate::Late] {
        let store = Moody::new([Fate::UntoldThenOther, Fate::Fine, then]);
        let error = things(&store).await.change("a", more(1)).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unknown, "{error}");
        assert_eq!(n(&store).await.unwrap() % 100, 1);
    }
    let store = Moody::new([Fate::Late]);
    let error = things(&store).await.change("a", more(1)).await.unwrap_err();
    assert_eq!((error.kind(), n(&store).await.unwrap() % 100), (Kind::Conflict, 0), "{error}");
}

/// A write after an operation on the same document has to read its guard again, which is no
/// failure.
#[tokio::test(start_paused = true)]
async fn an_operation_before_a_write_costs_no_retry() {
    let store = Moody::new([Fate::Fine]);
    let things = things(&store).await.retry(Backoff::never());
    assert!(matches!(things.insert("a", &Thing { n: 1 }).await.unwrap(), WriteAnswer::Applied(_)));
    things.operate("a", increment(1)).await.unwrap();
    let from = things.get("a").await.unwrap().unwrap().version;
    assert!(matches!(things.update("a", from, &Thing { n: 5 }).await.unwrap(), WriteAnswer::Applied(_)));
    things.operate("a", increment(2)).await.unwrap();
    things.change("a", more(10)).await.unwrap();
    assert_eq!(n(&store).await, Some(16));
}

/// Regression: after a conflict, a writer continued with the state from before the wait. On a busy
/// document it never succeeded.
#[tokio::test(start_paused = true)]
async fn a_busy_document_can_be_changed() {
    let store = Moody::new([Fate::Fine]);
    let things = Versioned::<Thing, _>::new(store.clone(), "things").await.unwrap();
    things.change("a", more(1)).await.unwrap();
    let busy = tokio::spawn({
        let things = Versioned::<Thing, _>::new(store.inner.clone(), "things").await.unwrap();
        async move {
            loop {
                sleep(Duration::from_millis(7)).await;
                things.change("a", more(100)).await.unwrap();
            }
        }
    });
    for changes in 2..=50 {
        things.change("a", more(1)).await.unwrap();
        assert_eq!(n(&store).await.unwrap() % 100, changes);
    }
    busy.abort();
}
