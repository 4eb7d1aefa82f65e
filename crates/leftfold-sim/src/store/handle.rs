//! A worker's handle to the simulated store.

use std::sync::Arc;
use std::time::Duration;

use leftfold::Memory;
use tokio::time::sleep;

use super::shared::Shared;
use crate::faults::{Fault, Faults};
use crate::fuse::Fuse;
use crate::gate::Gate;

/// A worker's handle to the simulated store.
#[derive(Clone)]
pub struct SimStore {
    pub(super) shared: Arc<Shared>,
    pub(crate) name: Arc<str>,
    pub(super) gate: Arc<Gate>,
    pub(super) fuse: Arc<Fuse>,
}

impl SimStore {
    /// Creates an empty store, with or without transactions.
    pub fn new(partitions: u16, atomic: bool, faults: Faults, trace: bool) -> Self {
        let shared = Shared::new(partitions, atomic, faults, trace);
        shared.trace.note(|| {
            format!("{partitions} partitions, {}", if atomic { "transactions" } else { "no transactions" })
        });
        let (gate, fuse) = (Arc::default(), Arc::default());
        Self { shared: Arc::new(shared), name: "outside".into(), gate, fuse }
    }

    /// Returns a handle for a worker, with its own gate and fuse.
    #[must_use]
    pub fn worker(&self, name: &str) -> Self {
        let (gate, fuse) = (Arc::default(), Arc::default());
        Self { shared: Arc::clone(&self.shared), name: name.into(), gate, fuse }
    }

    /// Returns the gate that pauses the worker.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Returns the fuse that ends the worker.
    pub fn fuse(&self) -> &Fuse {
        &self.fuse
    }

    pub(crate) fn fuse_of(&self) -> Arc<Fuse> {
        Arc::clone(&self.fuse)
    }

    /// Returns the state that all handles share.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns the inner store, which has no faults.
    pub fn inner(&self) -> &Memory {
        &self.shared.inner
    }

    /// Records a violation.
    pub(crate) fn violated(&self, violation: String) {
        self.shared.trace.note(|| violation.clone());
        self.shared.checker.violated(violation);
    }

    /// Returns whether the fault occurs now, and notes it.
    pub(crate) fn strikes(&self, fault: Fault) -> bool {
        let strikes = self.shared.faults.strikes(fault);
        if strikes {
            self.shared.trace.note(|| format!("{}: {fault:?}", self.name));
        }
        strikes
    }

    /// Waits for a random time below `most`.
    pub(crate) async fn takes(&self, most: Duration) {
        sleep(self.shared.faults.dice().time(most)).await;
    }
}
