//! The state that all writers share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use leftfold::DocumentId;
use leftfold::content::Operation;

use super::puts::Put;

/// The state that all writers share.
#[derive(Default)]
pub(in crate::contents) struct Common {
    numbers: AtomicU64,
    /// All attempted writes, which any writer may repeat.
    pub(super) puts: Mutex<Vec<Put>>,
    pub(super) operations: Mutex<Vec<(DocumentId, Operation)>>,
}

impl Common {
    /// Returns a number above all earlier ones.
    pub(super) fn next(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns all attempted operations.
    pub(in crate::contents) fn operations(&self) -> Vec<(DocumentId, Operation)> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
