//! What a handler has at hand.

use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::loader::Loader;
use super::reaction::Definition;
use super::retry::later;
use super::store::FoundDocument;
use super::task::{Moment, Outcome, Seen, Task, TaskKey, is_hash, kept};
use crate::error::{Error, Invalid, Result};
use crate::event::{DocumentId, Event};
use crate::planted::{Bug, planted};

/// Why there is no document to handle.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotCurrent {
    /// It is not what the task was planned for: gone, outside the filter, or changed. Return this from the handler: the task ends as stale, and is
    /// planned anew if there is something to handle.
    #[error("the document is not, or no longer, what the task was planned for")]
    Stale,
    /// It can't be read as the type the handler wants.
    #[error("the document is not of the type that is asked for: {0}")]
    Undecodable(Invalid),
    /// It can't be read.
    #[error(transparent)]
    Store(#[from] Error),
}

type Done<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// What of a store a handler needs, whatever the store.
pub(super) trait Hands: Send + Sync {
    /// The store's time, as far as it can be told without asking.
    fn now(&self) -> Timestamp;
    fn random(&self) -> u64;
    fn throttle(&self, reaction: &str, until: Timestamp) -> Done<()>;
    fn pause(&self, reaction: &str, why: &str) -> Done<()>;
    fn take_lease(&self, name: String, owner: String, length: Duration) -> Done<Option<u64>>;
    fn give_lease(&self, name: String, owner: String) -> Done<()>;
    fn as_any(&self) -> &dyn Any;
}

/// One run of a task.
pub(super) struct Inner {
    pub(super) definition: Arc<Definition>,
    pub(super) task: Task,
    pub(super) loader: Loader,
    pub(super) hands: Arc<dyn Hands>,
    pub(super) cancelled: watch::Receiver<bool>,
    pub(super) owner: String,
    /// The document was found to be another one.
    pub(super) stale: AtomicBool,
    /// The document was found to be what the task was planned for.
    pub(super) current: AtomicBool,
    /// The handler completes the task itself.
    pub(super) completes: AtomicBool,
    pub(super) deferred: Mutex<Option<Timestamp>>,
    pub(super) throttles: AtomicBool,
    /// What a reaction to events is about.
    pub(super) event: Option<Event>,
}

impl Inner {
    fn deferred(&self) -> MutexGuard<'_, Option<Timestamp>> {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the handler asked for, if it did.
    pub(super) fn takes_deferred(&self) -> Option<Timestamp> {
        self.deferred().take()
    }
}

/// What a handler has at hand: the document, what it was planned for, and the means to say what else should happen.
pub struct Context<D> {
    inner: Arc<Inner>,
    document: PhantomData<fn() -> D>,
}

impl<D> Clone for Context<D> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.inner))
    }
}

impl<D> Context<D> {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self { inner, document: PhantomData }
    }

    /// The document's id.
    pub fn id(&self) -> &DocumentId {
        &self.inner.task.key.document
    }

    /// How many attempts there were, this one included.
    pub fn attempt(&self) -> u32 {
        self.inner.task.attempts
    }

    /// The number of the claim: of two runs of a task, the one with the higher number is the later. A fence for what others write.
    pub fn epoch(&self) -> u64 {
        self.inner.task.epoch
    }

    /// A text that is the same for all attempts to handle this state of the document, and another one for the next: for those who are called to
    /// recognise a call that they have heard before.
    pub fn idempotency_key(&self) -> String {
        self.inner.task.idempotency_key()
    }

    /// The watched values for which the task was planned. Fails if they take more than 16 KiB: of such values only a hash is kept. Take
    /// them from the [document](Self::document), which is the one that the task was planned for.
    pub fn watched<W: DeserializeOwned>(&self) -> Result<W> {
        if is_hash(&self.inner.task.watched) {
            let expected = "at most 16 KiB of watched values; read larger ones from the document";
            return Err(Invalid::new("watched", self.inner.task.watched.as_str(), expected).into());
        }
        Ok(self.inner.task.watched.to()?)
    }

    /// Ends when the claim is lost: somebody else runs the task by now, and what this handler does will not count.
    pub async fn cancelled(&self) {
        let mut cancelled = self.inner.cancelled.clone();
        if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
            // The run is over, and nobody can lose it.
            std::future::pending::<()>().await;
        }
    }

    /// Whether the claim is lost.
    pub fn is_cancelled(&self) -> bool {
        *self.inner.cancelled.borrow()
    }

    /// Has the task run again, not before so much time has passed. The attempt does not count. Return `Ok` afterwards.
    pub fn defer(&self, by: Duration) {
        self.defer_until(later(self.inner.hands.now(), by));
    }

    /// The same, until a time.
    pub fn defer_until(&self, time: Timestamp) {
        *self.inner.deferred() = Some(time);
    }

    /// Has nobody, in no process, begin a run of this reaction before so much time has passed.
    pub async fn throttle(&self, by: Duration) -> Result<()> {
        self.throttle_until(later(self.inner.hands.now(), by)).await
    }

    /// The same, until a time.
    pub async fn throttle_until(&self, time: Timestamp) -> Result<()> {
        self.inner.hands.throttle(&self.inner.definition.name, time).await?;
        self.inner.throttles.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Has nobody, in no process, begin a run of this reaction until somebody [resumes](super::Reacting::resume) it, and says why. What runs goes on. For
    /// what only people can mend; [defer](Self::defer) this task, too, to have it run again then.
    pub async fn pause(&self, why: &str) -> Result<()> {
        self.inner.hands.pause(&self.inner.definition.name, why).await
    }

    /// A lock of this name, if nobody else has it. It is kept while this is, in whatever process, and its number is a fence.
    pub async fn lock(&self, name: &str) -> Result<Option<Lock>> {
        let inner = &self.inner;
        let owner = format!("{} {} {}", inner.owner, inner.task.key.document, inner.task.epoch);
        Lock::take(Arc::clone(&inner.hands), format!("lock {name}"), owner).await
    }

    /// The store, if it is of this type: what extensions of stores need.
    pub fn store<S: 'static>(&self) -> Option<&S> {
        self.inner.hands.as_any().downcast_ref()
    }

    /// Completes the task in a transaction of the handler's own: for extensions of stores. Gives the task as it is to be from the task as it is; a store
    /// writes it in that transaction, guarded by the version it had. `None` if the claim is lost: then the transaction must not be committed.
    ///
    /// Whether the handler has succeeded is what the store says afterwards, not what it returns.
    pub fn complete(&self, task: Task) -> Option<Task> {
        self.inner.completes.store(true, Ordering::Relaxed);
        let Inner { definition, task: claimed, hands, event, .. } = &*self.inner;
        let outcome = event.as_ref().map_or(Outcome::Done, |event| Outcome::Handled(event.revision.0));
        let moment = Moment { now: hands.now(), version: (hands.random() >> 1).max(1), chance: 0.5 };
        task.finish(claimed.epoch, outcome, &definition.rules, moment)
    }

    /// What to say where the claim is lost: for extensions of stores.
    pub fn lost(&self) -> Error {
        let TaskKey { reaction, document } = &self.inner.task.key;
        let message = format!(
            "completing {reaction} for {document} in a transaction: another process has taken the task over; do not commit it"
        );
        Error::new(crate::Kind::Conflict, message)
    }

    /// Which task it is: for extensions of stores.
    pub fn task(&self) -> &Task {
        &self.inner.task
    }

    /// Where its documents are: for extensions of stores.
    pub fn on(&self) -> Option<&super::On> {
        self.inner.definition.on.as_ref()
    }
}

impl Context<Event> {
    /// The event.
    pub fn event(&self) -> Result<&Event, NotCurrent> {
        self.inner.event.as_ref().ok_or(NotCurrent::Stale)
    }
}

impl<D: DeserializeOwned> Context<D> {
    /// The document as it is now, if it still is what the task was planned for: it is there, it matches, and its watched values are the same.
    pub async fn document(&self) -> Result<D, NotCurrent> {
        let Inner { definition, task, loader, .. } = &*self.inner;
        let on = definition.on.as_ref().ok_or(NotCurrent::Stale)?;
        let document = loader.load(on, &task.key.document).await?;
        self.current(document)
    }

    /// The same for a document that was read, in a transaction of the handler's own: for extensions of stores.
    pub fn current(&self, document: Option<FoundDocument>) -> Result<D, NotCurrent> {
        let Inner { definition, task, stale, current, hands, .. } = &*self.inner;
        let (seen, _) = definition.look(document.as_ref(), hands.now());
        match document.map(|document| document.body) {
            Some(Ok(body)) if seen == Seen::Inside(kept(task.watched.clone())) => {
                current.store(true, Ordering::Relaxed);
                body.json().to().map_err(NotCurrent::Undecodable)
            }
            Some(Err(why)) => {
                let invalid = Invalid::new("document", task.key.document.as_str(), why);
                Err(NotCurrent::Undecodable(invalid))
            }
            _ => {
                stale.store(true, Ordering::Relaxed);
                Err(NotCurrent::Stale)
            }
        }
    }
}

/// A lock that no other process has while this is kept. Dropped, it is given back.
pub struct Lock {
    number: u64,
    lost: watch::Receiver<bool>,
    _keeper: watch::Sender<()>,
}

/// How long a lock outlives its process.
const LOCKED: Duration = Duration::from_secs(5);

impl Lock {
    async fn take(hands: Arc<dyn Hands>, name: String, owner: String) -> Result<Option<Self>> {
        let Some(number) = hands.take_lease(name.clone(), owner.clone(), LOCKED).await? else {
            return Ok(None);
        };
        let (keeper, mut kept) = watch::channel(());
        let (is_gone, lost) = watch::channel(false);
        tokio::spawn(async move {
            // The sender is gone when the lock is dropped.
            while let Err(_elapsed) = tokio::time::timeout(LOCKED / 3, kept.changed()).await {
                if planted(Bug::LockUnkept) {
                    continue;
                }
                match hands.take_lease(name.clone(), owner.clone(), LOCKED).await {
                    Ok(Some(still)) if still == number => {}
                    Ok(_) => {
                        is_gone.send_replace(true);
                        return;
                    }
                    Err(error) => tracing::warn!(%error, name, "could not keep a lock; trying again"),
                }
            }
            if let Err(error) = hands.give_lease(name.clone(), owner).await {
                tracing::warn!(%error, name, "could not give a lock back; it ends by itself");
            }
        });
        Ok(Some(Self { number, lost, _keeper: keeper }))
    }

    /// A number that is higher than that of all who had the lock before. Whoever is written to can refuse a lower one.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether somebody else has it by now.
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }
}
