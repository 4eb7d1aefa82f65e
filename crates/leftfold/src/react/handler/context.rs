//! The context of a handler.

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

use crate::error::{Error, Invalid, Result};
use crate::event::{DocumentId, Event};
use crate::mutant;
use crate::react::define::Definition;
use crate::react::define::later;
use crate::react::run::loader::Loader;
use crate::react::store::FoundDocument;
use crate::react::task::{Observation, RunOutcome, Task, TaskKey, TaskMoment, is_hash, kept};

/// The reason why there is no document to handle.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotCurrent {
    /// The document is not what the task was planned for: it was deleted, no longer matches, or
    /// changed. Return this from the handler: the task ends as stale, and is planned again if there
    /// is something to handle.
    #[error("the document is not, or no longer, what the task was planned for")]
    Stale,
    /// The document can't be decoded as the handler's type.
    #[error("the document is not of the type that is asked for: {0}")]
    Undecodable(Invalid),
    /// The store could not read the document.
    #[error(transparent)]
    Store(#[from] Error),
}

type Done<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// The store operations that a handler needs, independent of the store's type.
pub(crate) trait Hands: Send + Sync {
    /// Returns the store's time, estimated without a request to the store.
    fn now(&self) -> Timestamp;
    fn random(&self) -> u64;
    fn throttle(&self, reaction: &str, until: Timestamp) -> Done<()>;
    fn pause(&self, reaction: &str, why: &str) -> Done<()>;
    fn take_lease(&self, name: String, owner: String, length: Duration) -> Done<Option<u64>>;
    fn give_lease(&self, name: String, owner: String) -> Done<()>;
    fn as_any(&self) -> &dyn Any;
}

/// One run of a task.
pub(crate) struct Inner {
    pub(crate) definition: Arc<Definition>,
    pub(crate) task: Task,
    pub(crate) loader: Loader,
    pub(crate) hands: Arc<dyn Hands>,
    pub(crate) cancelled: watch::Receiver<bool>,
    pub(crate) owner: String,
    /// `true` if the document was read and is not what the task was planned for.
    pub(crate) stale: AtomicBool,
    /// `true` if the document was read and is what the task was planned for.
    pub(crate) current: AtomicBool,
    /// `true` if the handler completes the task itself.
    pub(crate) completes: AtomicBool,
    pub(crate) deferred: Mutex<Option<Timestamp>>,
    pub(crate) throttles: AtomicBool,
    /// The event to handle, for a reaction to events.
    pub(crate) event: Option<Event>,
}

impl Inner {
    fn deferred(&self) -> MutexGuard<'_, Option<Timestamp>> {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the time to which the handler deferred the task, if it did.
    pub(crate) fn takes_deferred(&self) -> Option<Timestamp> {
        self.deferred().take()
    }
}

/// The context of a handler: the document, the task, and ways to defer, throttle, pause or
/// complete.
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
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self { inner, document: PhantomData }
    }

    /// Returns the document's id.
    pub fn id(&self) -> &DocumentId {
        &self.inner.task.key.document
    }

    /// Returns the number of attempts, including this one.
    pub fn attempt(&self) -> u32 {
        self.inner.task.attempts
    }

    /// Returns the number of the claim. A later run of the task has a higher number, so external
    /// systems can use it as a fencing token.
    pub fn epoch(&self) -> u64 {
        self.inner.task.epoch
    }

    /// Returns a text that is the same for all attempts to handle this state of the document, and
    /// different for the next state. Pass it to external services so that they recognise repeated
    /// calls.
    pub fn idempotency_key(&self) -> String {
        self.inner.task.idempotency_key()
    }

    /// Returns the watched values for which the task was planned.
    ///
    /// Fails if they take more than 16 KiB, because the task then keeps only their hash. Read them
    /// from the [document](Self::document) instead: it is the one that the task was planned for.
    pub fn watched<W: DeserializeOwned>(&self) -> Result<W> {
        if is_hash(&self.inner.task.watched) {
            let expected = "at most 16 KiB of watched values; read larger ones from the document";
            return Err(Invalid::new("watched", self.inner.task.watched.as_str(), expected).into());
        }
        Ok(self.inner.task.watched.to()?)
    }

    /// Completes when the claim is lost. Another worker may then run the task, and the result of
    /// this handler does not count.
    pub async fn cancelled(&self) {
        let mut cancelled = self.inner.cancelled.clone();
        if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
            // The run is over, so its claim can no longer be lost.
            std::future::pending::<()>().await;
        }
    }

    /// Returns whether the claim is lost.
    pub fn is_cancelled(&self) -> bool {
        *self.inner.cancelled.borrow()
    }

    /// Runs the task again after this time. The attempt does not count. Return `Ok` afterwards.
    pub fn defer(&self, by: Duration) {
        self.defer_until(later(self.inner.hands.now(), by));
    }

    /// Runs the task again at this time or later. See [`defer`](Self::defer).
    pub fn defer_until(&self, time: Timestamp) {
        *self.inner.deferred() = Some(time);
    }

    /// Stops every process from beginning runs of this reaction until this time has passed.
    pub async fn throttle(&self, by: Duration) -> Result<()> {
        self.throttle_until(later(self.inner.hands.now(), by)).await
    }

    /// Stops every process from beginning runs of this reaction until `time`.
    pub async fn throttle_until(&self, time: Timestamp) -> Result<()> {
        self.inner.hands.throttle(&self.inner.definition.name, time).await?;
        self.inner.throttles.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Stops every process from beginning runs of this reaction until an operator
    /// [resumes](crate::react::ReactorHandle::resume) it. The reason is stored; handlers that already run
    /// continue. Use it for problems that only people can fix. To have this task run again
    /// afterwards, [defer](Self::defer) it too.
    pub async fn pause(&self, why: &str) -> Result<()> {
        self.inner.hands.pause(&self.inner.definition.name, why).await
    }

    /// Takes the lock of this name, or returns `None` if another owner has it. The lock is held
    /// until it is dropped; it excludes all processes. Its number is a fencing token.
    pub async fn lock(&self, name: &str) -> Result<Option<Lock>> {
        let inner = &self.inner;
        let owner = format!("{} {} {}", inner.owner, inner.task.key.document, inner.task.epoch);
        Lock::take(Arc::clone(&inner.hands), format!("lock {name}"), owner).await
    }

    /// Returns the store if it has this type. For extensions of stores.
    pub fn store<S: 'static>(&self) -> Option<&S> {
        self.inner.hands.as_any().downcast_ref()
    }

    /// Completes the task in the handler's own transaction. For extensions of stores.
    ///
    /// Given the current task, returns the completed one. The store writes it in that transaction,
    /// conditional on the version that the current task has. Returns `None` if the claim is lost:
    /// then the transaction must not be committed.
    ///
    /// The stored task then decides whether the handler succeeded, not the handler's result.
    pub fn complete(&self, task: Task) -> Option<Task> {
        self.inner.completes.store(true, Ordering::Relaxed);
        let Inner { definition, task: claimed, hands, event, .. } = &*self.inner;
        let outcome = event.as_ref().map_or(RunOutcome::Done, |event| RunOutcome::Handled(event.revision.0));
        let moment = TaskMoment { now: hands.now(), version: (hands.random() >> 1).max(1), chance: 0.5 };
        task.finish(claimed.epoch, outcome, &definition.rules, moment)
    }

    /// Returns the error for a lost claim. For extensions of stores.
    pub fn lost(&self) -> Error {
        let TaskKey { reaction, document } = &self.inner.task.key;
        let message = format!(
            "completing {reaction} for {document} in a transaction: another process has taken the task over; do not commit it"
        );
        Error::new(crate::Kind::Conflict, message)
    }

    /// Returns the task. For extensions of stores.
    pub fn task(&self) -> &Task {
        &self.inner.task
    }

    /// Returns where the reaction's documents are stored. For extensions of stores.
    pub fn on(&self) -> Option<&crate::react::DocumentSource> {
        self.inner.definition.on.as_ref()
    }
}

impl Context<Event> {
    /// Returns the event.
    pub fn event(&self) -> Result<&Event, NotCurrent> {
        self.inner.event.as_ref().ok_or(NotCurrent::Stale)
    }
}

impl<D: DeserializeOwned> Context<D> {
    /// Returns the current document if it is still what the task was planned for: it exists, it
    /// matches, and its watched values are the same.
    pub async fn document(&self) -> Result<D, NotCurrent> {
        let Inner { definition, task, loader, .. } = &*self.inner;
        let on = definition.on.as_ref().ok_or(NotCurrent::Stale)?;
        let document = loader.load(on, &task.key.document).await?;
        self.current(document)
    }

    /// Like [`document`](Self::document), for a document that was read in the handler's own
    /// transaction. For extensions of stores.
    pub fn current(&self, document: Option<FoundDocument>) -> Result<D, NotCurrent> {
        let Inner { definition, task, stale, current, hands, .. } = &*self.inner;
        let (seen, _) = definition.look(document.as_ref(), hands.now());
        match document.map(|document| document.body) {
            Some(Ok(body)) if seen == Observation::Inside(kept(task.watched.clone())) => {
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

/// A lock that excludes all other processes while it is held. Dropping it releases it.
pub struct Lock {
    number: u64,
    lost: watch::Receiver<bool>,
    _keeper: watch::Sender<()>,
}

/// The time after which the lock of a dead process expires.
const LOCKED: Duration = Duration::from_secs(5);

impl Lock {
    async fn take(hands: Arc<dyn Hands>, name: String, owner: String) -> Result<Option<Self>> {
        let Some(number) = hands.take_lease(name.clone(), owner.clone(), LOCKED).await? else {
            return Ok(None);
        };
        let (keeper, mut kept) = watch::channel(());
        let (is_gone, lost) = watch::channel(false);
        tokio::spawn(async move {
            // The sender is dropped with the lock.
            while let Err(_elapsed) = tokio::time::timeout(LOCKED / 3, kept.changed()).await {
                mutant!(LockUnkept => continue);
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

    /// Returns the fencing token: a number higher than that of every previous owner. External
    /// systems can reject writes with a lower number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns whether the lock was lost to another owner.
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }
}
