//! The context of a handler.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;

use super::attempt::Attempt;
use super::error::NotCurrent;
use super::lock::Lock;
use crate::error::{Error, Invalid, Kind, Result};
use crate::event::{DocumentId, Event};
use crate::react::store::{DocumentSource, FoundDocument};
use crate::react::task::{Observation, RunOutcome, Task, TaskKey, TaskMoment, is_hash, kept};
use crate::react::time::later;

/// The context of a handler: the document, the task, and ways to defer, throttle, pause or
/// complete.
pub struct Context<D> {
    run: Arc<Attempt>,
    document: PhantomData<fn() -> D>,
}

impl<D> Clone for Context<D> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.run))
    }
}

impl<D> Context<D> {
    pub(crate) fn new(run: Arc<Attempt>) -> Self {
        Self { run, document: PhantomData }
    }

    /// Returns the document's id.
    pub fn id(&self) -> &DocumentId {
        &self.run.task.key.document
    }

    /// Returns the number of attempts, including this one.
    pub fn attempt(&self) -> u32 {
        self.run.task.attempts
    }

    /// Returns the number of the claim. A later run of the task has a higher number, so external
    /// systems can use it as a fencing token.
    pub fn epoch(&self) -> u64 {
        self.run.task.epoch
    }

    /// Returns a text that is the same for all attempts to handle this state of the document, and
    /// different for the next state. Pass it to external services so that they recognise repeated
    /// calls.
    pub fn idempotency_key(&self) -> String {
        self.run.task.idempotency_key()
    }

    /// Returns the watched values for which the task was planned.
    ///
    /// Fails if they take more than 16 KiB, because the task then keeps only their hash. Read them
    /// from the [document](Self::document) instead: it is the one that the task was planned for.
    pub fn watched<W: DeserializeOwned>(&self) -> Result<W> {
        if is_hash(&self.run.task.watched) {
            let expected = "at most 16 KiB; read larger values from the document";
            return Err(Invalid::new("watched values", self.run.task.watched.as_str(), expected).into());
        }
        Ok(self.run.task.watched.to()?)
    }

    /// Completes when the claim is lost. Another worker may then run the task, and the result of
    /// this handler does not count.
    pub async fn cancelled(&self) {
        let mut cancelled = self.run.cancelled.clone();
        if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
            // The run is over, so its claim can no longer be lost.
            std::future::pending::<()>().await;
        }
    }

    /// Returns whether the claim is lost.
    pub fn is_cancelled(&self) -> bool {
        *self.run.cancelled.borrow()
    }

    /// Runs the task again after this time. The attempt does not count. Return `Ok` afterwards.
    pub fn defer(&self, by: Duration) {
        self.defer_until(later(self.run.store.now(), by));
    }

    /// Runs the task again at this time or later. See [`defer`](Self::defer).
    pub fn defer_until(&self, time: Timestamp) {
        self.run.report.defer(time);
    }

    /// Stops every process from beginning runs of this reaction until this time has passed.
    pub async fn throttle(&self, by: Duration) -> Result<()> {
        self.throttle_until(later(self.run.store.now(), by)).await
    }

    /// Stops every process from beginning runs of this reaction until `time`.
    pub async fn throttle_until(&self, time: Timestamp) -> Result<()> {
        self.run.store.throttle(&self.run.definition.name, time).await?;
        self.run.report.throttles.set();
        Ok(())
    }

    /// Stops every process from beginning runs of this reaction until an operator
    /// [resumes](crate::react::ReactorHandle::resume) it. The reason is stored. Handlers that already
    /// run continue. Use it for problems that only people can fix. To run this task again afterwards,
    /// [defer](Self::defer) it too.
    pub async fn pause(&self, reason: &str) -> Result<()> {
        self.run.store.pause(&self.run.definition.name, reason).await
    }

    /// Takes the lock of this name, or returns `None` if another owner has it. The lock is held
    /// until it is dropped; it excludes all processes. Its number is a fencing token.
    pub async fn lock(&self, name: &str) -> Result<Option<Lock>> {
        let run = &self.run;
        let owner = format!("{} {} {}", run.owner, run.task.key.document, run.task.epoch);
        Lock::take(Arc::clone(&run.store), format!("lock {name}"), owner).await
    }

    /// Returns the store if it has this type. For extensions of stores.
    pub fn store<S: 'static>(&self) -> Option<&S> {
        self.run.store.as_any().downcast_ref()
    }

    /// Completes the task in the handler's own transaction. For extensions of stores.
    ///
    /// Given the current task, returns the completed one. The store writes it in that transaction,
    /// conditional on the version that the current task has. Returns `None` if the claim is lost:
    /// then the transaction must not be committed.
    ///
    /// The stored task then decides whether the handler succeeded, not the handler's result.
    pub fn complete(&self, task: Task) -> Option<Task> {
        self.run.report.completes.set();
        let Attempt { definition, task: claimed, store, event, .. } = &*self.run;
        let outcome = event.as_ref().map_or(RunOutcome::Done, |event| RunOutcome::Handled(event.revision.0));
        let moment = TaskMoment { now: store.now(), version: (store.random() >> 1).max(1), random: 0.5 };
        task.finish(claimed.epoch, outcome, &definition.rules, moment)
    }

    /// Returns the error for a lost claim. For extensions of stores.
    pub fn lost(&self) -> Error {
        let TaskKey { reaction, document } = &self.run.task.key;
        let message = format!(
            "completing {reaction} for {document} in a transaction: another process has taken the task over; \
             do not commit it"
        );
        Error::new(Kind::Conflict, message)
    }

    /// Returns the task. For extensions of stores.
    pub fn task(&self) -> &Task {
        &self.run.task
    }

    /// Returns where the reaction's documents are stored. For extensions of stores.
    pub fn on(&self) -> Option<&DocumentSource> {
        self.run.definition.on.as_ref()
    }
}

impl Context<Event> {
    /// Returns the event.
    pub fn event(&self) -> Result<&Event, NotCurrent> {
        self.run.event.as_ref().ok_or(NotCurrent::Stale)
    }
}

impl<D: DeserializeOwned> Context<D> {
    /// Returns the current document if it is still what the task was planned for: it exists, it
    /// matches, and its watched values are the same.
    pub async fn document(&self) -> Result<D, NotCurrent> {
        let Attempt { definition, task, loader, .. } = &*self.run;
        let on = definition.on.as_ref().ok_or(NotCurrent::Stale)?;
        let document = loader.load(on, &task.key.document).await?;
        self.current(document)
    }

    /// Like [`document`](Self::document), for a document that was read in the handler's own
    /// transaction. For extensions of stores.
    pub fn current(&self, document: Option<FoundDocument>) -> Result<D, NotCurrent> {
        let Attempt { definition, task, report, store, .. } = &*self.run;
        let (seen, _) = definition.observe(document.as_ref(), store.now());
        match document.map(|document| document.body) {
            Some(Ok(body)) if seen == Observation::Inside(kept(task.watched.clone())) => {
                report.current.set();
                body.json().to().map_err(NotCurrent::Undecodable)
            }
            Some(Err(reason)) => {
                let invalid = Invalid::new(
                    "document",
                    task.key.document.as_str(),
                    format!("a readable body: {reason}"),
                );
                Err(NotCurrent::Undecodable(invalid))
            }
            _ => {
                report.stale.set();
                Err(NotCurrent::Stale)
            }
        }
    }
}
