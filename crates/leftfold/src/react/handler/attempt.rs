//! One run of a task, as its handler and its runner share it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::watch;

use super::access::StoreAccess;
use crate::event::Event;
use crate::react::define::Definition;
use crate::react::run::Loader;
use crate::react::task::Task;

/// One run of a task.
pub(crate) struct Attempt {
    pub(crate) definition: Arc<Definition>,
    pub(crate) task: Task,
    pub(crate) loader: Loader,
    pub(crate) store: Arc<dyn StoreAccess>,
    pub(crate) cancelled: watch::Receiver<bool>,
    pub(crate) owner: String,
    /// The event to handle, for a reaction to events.
    pub(crate) event: Option<Event>,
    pub(crate) report: Report,
}

/// The information that a handler leaves for its runner, beside its result.
#[derive(Default)]
pub(crate) struct Report {
    /// `true` if the document was read and is not what the task was planned for.
    pub(crate) stale: Flag,
    /// `true` if the document was read and is what the task was planned for.
    pub(crate) current: Flag,
    /// `true` if the handler completes the task itself.
    pub(crate) completes: Flag,
    pub(crate) throttles: Flag,
    deferred: Mutex<Option<Timestamp>>,
}

impl Report {
    /// Records that the handler defers the task.
    pub(super) fn defer(&self, until: Timestamp) {
        *self.deferred() = Some(until);
    }

    /// Takes the time to which the handler deferred the task, if it did.
    pub(crate) fn take_deferred(&self) -> Option<Timestamp> {
        self.deferred().take()
    }

    fn deferred(&self) -> MutexGuard<'_, Option<Timestamp>> {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A fact that is recorded once.
#[derive(Default)]
pub(crate) struct Flag(AtomicBool);

impl Flag {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
