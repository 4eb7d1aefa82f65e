//! The runs of a process, by task.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use crate::mutant;
use crate::react::task::{Task, TaskKey};

/// The runs of this process.
#[derive(Default)]
pub(crate) struct Running {
    runs: Mutex<BTreeMap<TaskKey, Held>>,
    /// The claims that were lost here, by task.
    lost: Mutex<BTreeMap<TaskKey, u64>>,
    /// Notifies when a run has ended.
    pub(super) freed: Notify,
}

pub(super) struct Held {
    /// The task as it was last written here.
    pub(super) task: Task,
    pub(super) cancel: watch::Sender<bool>,
    /// `true` if the handler has ended, but its outcome is not written yet.
    pub(super) ended: bool,
}

impl Running {
    pub(super) fn runs(&self) -> MutexGuard<'_, BTreeMap<TaskKey, Held>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count(&self) -> usize {
        self.runs().len()
    }

    /// Adds the run of a task that was just claimed.
    pub(super) fn begin(&self, task: &Task) {
        let held = Held { task: task.clone(), cancel: watch::Sender::new(false), ended: false };
        self.runs().insert(task.key.clone(), held);
    }

    /// Returns the number of running handlers.
    pub(super) fn active(&self) -> usize {
        self.runs().values().filter(|held| !held.ended).count()
    }

    /// Records that a handler has ended: another one may begin while its outcome is written.
    pub(super) fn ends(&self, key: &TaskKey, epoch: u64) {
        if let Some(held) = self.runs().get_mut(key).filter(|held| held.task.epoch == epoch) {
            held.ended = true;
        }
        self.freed.notify_one();
    }

    /// Returns the task of this run, as it was last written here. Returns `None` if the task was
    /// claimed again meanwhile.
    pub(super) fn held(&self, key: &TaskKey, epoch: u64) -> Option<Task> {
        let task = self.runs().get(key)?.task.clone();
        mutant!(RunsMixedUp => return Some(task));
        (task.epoch == epoch).then_some(task)
    }

    /// Returns the signal that the claim of this run is lost. Returns `None` if another run has
    /// replaced this one.
    pub(super) fn cancellation(&self, key: &TaskKey, epoch: u64) -> Option<watch::Receiver<bool>> {
        let runs = self.runs();
        runs.get(key).filter(|held| held.task.epoch == epoch).map(|held| held.cancel.subscribe())
    }

    /// Updates the task of this run after it was read or written.
    pub(super) fn update(&self, task: &Task) {
        if let Some(held) = self.runs().get_mut(&task.key).filter(|held| held.task.epoch == task.epoch) {
            held.task = task.clone();
        }
    }

    /// Tells the handler of this run that its claim is lost.
    pub(super) fn cancel(&self, key: &TaskKey, epoch: u64) {
        if let Some(held) = self.runs().get(key).filter(|held| held.task.epoch == epoch) {
            held.cancel.send_replace(true);
        }
    }

    /// Removes a run that has ended.
    pub(super) fn release(&self, key: &TaskKey, epoch: u64) {
        mutant!(RunsMixedUp => self.runs().remove(key));
        {
            let mut runs = self.runs();
            if runs.get(key).is_some_and(|held| held.task.epoch == epoch) {
                runs.remove(key);
            }
        }
        self.freed.notify_one();
    }

    /// Removes a run whose claim another worker has taken over.
    pub(super) fn lose(&self, key: &TaskKey, epoch: u64) {
        self.release(key, epoch);
        self.lost().insert(key.clone(), epoch);
    }

    /// Takes the claims that were lost here, each with its epoch.
    pub(super) fn take_lost(&self) -> BTreeMap<TaskKey, u64> {
        std::mem::take(&mut *self.lost())
    }

    /// Puts back lost claims, unless there are later ones of the same tasks.
    pub(super) fn keep_lost(&self, lost: BTreeMap<TaskKey, u64>) {
        let mut kept = self.lost();
        for (key, epoch) in lost {
            kept.entry(key).or_insert(epoch);
        }
    }

    fn lost(&self) -> MutexGuard<'_, BTreeMap<TaskKey, u64>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
