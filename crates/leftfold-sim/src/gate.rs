//! The pause of a worker, at its next request or response.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// A gate that pauses its worker while it is closed.
#[derive(Default)]
pub struct Gate {
    closed: AtomicBool,
    opened: Notify,
}

impl Gate {
    /// Pauses the worker at its next request or response.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Lets the worker continue.
    pub fn open(&self) {
        self.closed.store(false, Ordering::Relaxed);
        self.opened.notify_waiters();
    }

    /// Waits while the gate is closed.
    pub async fn pass(&self) {
        while self.closed.load(Ordering::Relaxed) {
            self.opened.notified().await;
        }
    }
}
