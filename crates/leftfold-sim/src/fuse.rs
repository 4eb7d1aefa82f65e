//! The death of a worker, at any point where it waits for the store.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use tokio::sync::Notify;

/// Counts the polls of the store's responses, and ends the worker at a given count. From then on
/// the worker gets no response, until another actor finds it dead.
#[derive(Debug)]
pub struct Fuse {
    polls: AtomicU64,
    ends_at: AtomicU64,
    blown: Notify,
}

const NEVER: u64 = u64::MAX;

impl Default for Fuse {
    fn default() -> Self {
        Self { polls: AtomicU64::new(0), ends_at: AtomicU64::new(NEVER), blown: Notify::new() }
    }
}

impl Fuse {
    /// Returns the number of polls so far.
    pub fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }

    /// Makes the worker end after this many more polls, if it has not ended yet.
    pub fn light(&self, polls: u64) {
        self.set(self.polls() + polls);
    }

    /// Cancels the end, if the worker has not ended yet.
    pub fn put_out(&self) {
        self.set(NEVER);
    }

    fn set(&self, ends_at: u64) {
        if !self.is_blown() {
            self.ends_at.store(ends_at, Ordering::Relaxed);
        }
    }

    /// Returns whether the worker has ended.
    pub fn is_blown(&self) -> bool {
        self.polls() > self.ends_at.load(Ordering::Relaxed)
    }

    /// Waits until the worker has ended.
    pub async fn blown(&self) {
        while !self.is_blown() {
            self.blown.notified().await;
        }
    }

    /// Runs a store operation, and never completes if the worker has ended.
    pub async fn run<T>(&self, answer: impl Future<Output = T>) -> T {
        let mut answer = pin!(answer);
        std::future::poll_fn(|context| {
            if self.is_blown() {
                return Poll::Pending;
            }
            self.polls.fetch_add(1, Ordering::Relaxed);
            if self.is_blown() {
                self.blown.notify_waiters();
                return Poll::Pending;
            }
            answer.as_mut().poll(context)
        })
        .await
    }
}
