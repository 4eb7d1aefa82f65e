//! The stop signal of a reactor.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// The stop signal. Waiters wake in the order in which they began to wait, so that simulations are
/// deterministic.
#[derive(Default)]
pub(super) struct Stop {
    is_set: AtomicBool,
    changed: Notify,
}

impl Stop {
    pub(super) fn set(&self) {
        self.is_set.store(true, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// Waits for the signal.
    pub(super) async fn wait(&self) {
        // This order matters: a signal after this line wakes the waiter.
        let changed = self.changed.notified();
        if !self.is_set() {
            changed.await;
        }
    }
}
