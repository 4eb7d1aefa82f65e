//! The guarded read-modify-write by hand, for applications with their own consumer.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use crate::backoff::Backoff;
use crate::documents::{Collection, CollectionWrites, Commit, CommitOutcome, DocumentWrite, Header, Record};
use crate::env::{Env, System};
use crate::error::{Error, Kind, Result};
use crate::event::DocumentId;
use crate::fold;
use crate::json::Json;
use crate::mark::{Lane, Verdict};
use crate::store::Store;

/// Documents of one type, each guarded by the mark of the events folded into it.
///
/// ```
/// use leftfold::{Guarded, Lane, Memory, Rule, documents::guarded::GuardedAnswer};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leftfold::Result<()> {
/// let totals = Guarded::<u64, _>::new(Memory::default(), "totals").await?;
/// // Revision 1 of cart-7 adds 20; it is delivered twice, and revision 3 comes too early.
/// let add = |total: Option<u64>| Ok(Some(total.unwrap_or(0) + 20));
/// let cart = Lane::named("cart-7");
/// assert_eq!(totals.fold("ann", &cart, 1, Rule::Contiguous, add).await?, GuardedAnswer::Applied(Some(20)));
/// assert_eq!(totals.fold("ann", &cart, 1, Rule::Contiguous, add).await?, GuardedAnswer::Skipped);
/// assert_eq!(totals.fold("ann", &cart, 3, Rule::Contiguous, add).await?, GuardedAnswer::Gap { expected: 2 });
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Guarded<D, S> {
    store: S,
    env: Arc<dyn Env>,
    collection: Collection,
    retry: Backoff,
    document: std::marker::PhantomData<fn() -> D>,
}

/// The numbers that are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Any number above the last one: gaps are normal.
    Growing,
    /// Only the number after the last one: every event counts.
    Contiguous,
}

/// The result of folding an event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum GuardedAnswer<D> {
    /// The event is folded; this is the document now.
    Applied(Option<D>),
    /// The event was folded before. With [`Rule::Growing`], it may also be stale: a later one was
    /// folded. Nothing was changed.
    Skipped,
    /// The event came too early. Hold it back until the expected one was folded.
    Gap {
        /// The number that must come first.
        expected: u64,
    },
}

impl<D, S: std::fmt::Debug> std::fmt::Debug for Guarded<D, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { store, collection, retry, .. } = self;
        let mut shown = f.debug_struct("Guarded");
        shown
            .field("store", store)
            .field("collection", collection)
            .field("retry", retry)
            .finish_non_exhaustive()
    }
}

impl<D: Serialize + DeserializeOwned + Send, S: Store> Guarded<D, S> {
    /// Opens this collection, and creates it if it does not exist.
    ///
    /// Events folded by hand can't be replayed: if a projection fills the same collection and is
    /// rebuilt, its new documents lack them.
    pub async fn new(store: S, collection: &str) -> Result<Self> {
        let collection = Collection::new(collection)?;
        store.prepare(&collection).await?;
        // Resolve the live generation once, so that it need not be looked up for every event.
        let collection = collection.generation(store.generations(&collection).await?.live.number);
        let retry = Backoff::default().first(Duration::from_millis(2)).limit(20);
        Ok(Self { store, env: Arc::new(System), collection, retry, document: std::marker::PhantomData })
    }

    /// Sets the retry policy for concurrent changes of the same document.
    #[must_use]
    pub fn retry(self, retry: Backoff) -> Self {
        Self { retry, ..self }
    }

    /// Sets the source of randomness; the default is the operating system.
    #[must_use]
    pub fn env(self, env: impl Env) -> Self {
        Self { env: Arc::new(env), ..self }
    }

    /// Returns the document, if it exists.
    pub async fn get(&self, id: &str) -> Result<Option<D>> {
        let id = DocumentId::new(id)?;
        self.document(&id, self.load(&id).await?.as_ref())
    }

    /// Folds one event into one document, exactly once. It loads the document, decides by its mark,
    /// applies `change`, and writes under guard; it retries if another process writes first.
    /// `change` may be called several times. It receives and returns `None` for a document that
    /// does not exist.
    ///
    /// The answer distinguishes an applied event from a stale or duplicate one:
    ///
    /// ```
    /// use leftfold::{Guarded, Lane, Memory, Rule, documents::guarded::GuardedAnswer, revision::Clock};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leftfold::Result<()> {
    /// let prices = Guarded::<u64, _>::new(Memory::default(), "prices").await?;
    /// let (shop, clock) = (Lane::named("shop"), Clock::new());
    /// let (first, second) = (clock.next().0, clock.next().0);
    /// // The second price overtakes the first. Gaps are normal, so it is not waited for anything.
    /// let answer = prices.fold("shoes", &shop, second, Rule::Growing, |_| Ok(Some(4_900))).await?;
    /// assert_eq!(answer, GuardedAnswer::Applied(Some(4_900)));
    /// let answer = prices.fold("shoes", &shop, first, Rule::Growing, |_| Ok(Some(5_500))).await?;
    /// assert_eq!(answer, GuardedAnswer::Skipped);
    /// assert_eq!(prices.get("shoes").await?, Some(4_900));
    /// # Ok(()) }
    /// ```
    ///
    /// If the answer to a write was lost, the document's mark decides. Then a write that others
    /// have built upon is reported as skipped. Two processes that fold the same event at the same
    /// time may both get `Applied`. The event is applied once all the same.
    pub async fn fold(
        &self,
        id: &str,
        lane: &Lane,
        number: u64,
        rule: Rule,
        change: impl Fn(Option<D>) -> Result<Option<D>, fold::Error> + Send,
    ) -> Result<GuardedAnswer<D>> {
        let id = DocumentId::new(id)?;
        let mut delays = self.retry.delays(self.env.random());
        let mut doubtful = None;
        loop {
            let record = self.load(&id).await?;
            let header = record.as_ref().map(|record| &record.header);
            if header.is_some() && header == doubtful.as_ref() {
                return Ok(GuardedAnswer::Applied(self.document(&id, record.as_ref())?));
            }
            let mut mark = header.map(|header| header.mark.clone()).unwrap_or_default();
            let verdict = match rule {
                Rule::Growing => mark.judge(lane, number),
                Rule::Contiguous => mark.judge_contiguous(lane, number),
            };
            match verdict {
                Verdict::Apply => {}
                Verdict::Skip => return Ok(GuardedAnswer::Skipped),
                Verdict::Gap { expected } => return Ok(GuardedAnswer::Gap { expected }),
            }
            let changed = change(self.document(&id, record.as_ref())?).map_err(|error| {
                let message =
                    format!("folding {number} of {lane} into {id} of {}: {error}", self.collection.base());
                Error::new(Kind::Invalid, message)
            })?;
            mark.advance(lane, number);
            // A projection may fill the same collection: keep its parked events.
            let header = Header { mark, parked: header.and_then(|header| header.parked.clone()) };
            let body = changed.as_ref().map(Json::of).transpose()?;
            let write = DocumentWrite {
                expected: record.map(|record| record.header),
                record: Record { id: id.clone(), header: header.clone(), body },
            };
            let writes = vec![CollectionWrites { collection: self.collection.clone(), writes: vec![write] }];
            match self.store.commit(Arc::new(Commit { advance: None, changes: writes })).await? {
                CommitOutcome::Applied => return Ok(GuardedAnswer::Applied(changed)),
                CommitOutcome::Conflict(_) => {}
                CommitOutcome::Unknown(_) => doubtful = Some(header),
            }
            let Some(delay) = delays.next() else {
                let message = format!(
                    "folding {number} of {lane} into {id} of {}: other writers keep changing it; deliver it \
                     again",
                    self.collection.base()
                );
                return Err(Error::new(
                    if doubtful.is_some() { Kind::Unknown } else { Kind::Conflict },
                    message,
                ));
            };
            sleep(delay).await;
        }
    }

    async fn load(&self, id: &DocumentId) -> Result<Option<Record>> {
        Ok(self.store.load(&self.collection, vec![id.clone()]).await?.pop())
    }

    fn document(&self, id: &DocumentId, record: Option<&Record>) -> Result<Option<D>> {
        let body = record.and_then(|record| record.body.as_ref());
        body.map(Json::to).transpose().map_err(|error| {
            let message = format!(
                "reading {id} from {}: the document does not have the requested type: {error}",
                self.collection.base()
            );
            Error::new(Kind::Format, message)
        })
    }
}
