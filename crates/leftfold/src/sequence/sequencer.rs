//! The handle of a sequencer, which all its operations share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use super::cache::Cache;
use super::counts::SequencerCounts;
use super::delivery::HoldingLimits;
use super::store::Sequences;
use crate::env::{Env, System};
use crate::event::to_the_microsecond;

/// Brings deliveries into the log. Cloning creates another handle.
pub struct Sequencer<S>(pub(super) Arc<Inner<S>>);

impl<S> Clone for Sequencer<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// The state that all handles share.
pub(super) struct Inner<S> {
    pub(super) store: S,
    pub(super) env: Arc<dyn Env>,
    pub(super) limits: HoldingLimits,
    cache: Mutex<Cache>,
}

impl<S: Sequences + Clone> Sequencer<S> {
    /// Creates a sequencer in front of this store's log.
    pub fn new(store: S) -> Self {
        Self::with(store, HoldingLimits::default(), Arc::new(System))
    }

    /// Creates a sequencer with other limits, and other sources of time and randomness.
    pub fn with(store: S, limits: HoldingLimits, env: Arc<dyn Env>) -> Self {
        Self(Arc::new(Inner { store, env, limits, cache: Mutex::default() }))
    }

    /// Returns the store.
    pub fn store(&self) -> &S {
        &self.0.store
    }

    pub(super) fn now(&self) -> Timestamp {
        to_the_microsecond(self.0.env.now())
    }

    /// Returns a version for a change.
    pub(super) fn random(&self) -> u64 {
        self.0.env.random() >> 1
    }

    /// Returns the counters since it was created.
    pub fn counts(&self) -> SequencerCounts {
        self.0.cache().counts()
    }
}

impl<S> Inner<S> {
    pub(super) fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
