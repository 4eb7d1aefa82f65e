//! The responses that clients got.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leftfold::Bookmark;

/// The responses that clients got, and their counts.
#[derive(Debug, Default)]
pub(crate) struct Responses {
    acknowledged: Mutex<Vec<Bookmark>>,
    pub(crate) refused: AtomicU64,
    pub(crate) waited_reads: AtomicU64,
    pub(crate) parked_reads: AtomicU64,
    pub(crate) switched: AtomicU64,
    pub(crate) undone: AtomicU64,
}

impl Responses {
    pub(crate) fn acknowledged(&self) -> MutexGuard<'_, Vec<Bookmark>> {
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
