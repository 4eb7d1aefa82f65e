//! Threads for users' code. Folds, routes and decoding run here and never on the runtime's threads,
//! which answer requests, renew leases and receive signals. Code that is slow, or never returns,
//! delays nothing else.
//!
//! The pool starts a thread when all others are busy, and a thread ends after some idle time. They
//! are not the runtime's own blocking threads, because a runtime that shuts down waits for those,
//! and users' code may hang.
//!
//! On a current-thread runtime the code runs in place: there is only one thread, and simulations
//! must be deterministic.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

use crate::error::{Error, Kind, Result};

/// The time a thread waits for work before it ends.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

static POOL: Pool =
    Pool { state: Mutex::new(State { jobs: VecDeque::new(), idle: 0 }), changed: Condvar::new() };

struct Pool {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    /// The number of threads that wait for a job.
    idle: usize,
}

/// Returns whether users' code runs on the calling thread.
pub(crate) fn in_place() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::CurrentThread)
}

thread_local! {
    /// `true` on a thread of this pool.
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// Runs users' code here, after the runtime has moved this thread's other work to another thread.
/// For callers that wait for nothing else, such as inspecting or repairing a document.
pub(crate) fn blocking<T>(work: impl FnOnce() -> T) -> T {
    let is_theirs = !IS_OURS.get()
        && Handle::try_current()
            .is_ok_and(|runtime| runtime.runtime_flavor() != RuntimeFlavor::CurrentThread);
    if is_theirs { tokio::task::block_in_place(work) } else { work() }
}

/// Runs users' code on a thread of the pool.
pub(crate) async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    if in_place() {
        return Ok(work());
    }
    let (sender, receiver) = oneshot::channel();
    POOL.start(Box::new(move || drop(sender.send(work()))));
    receiver.await.map_err(|_| ended())
}

/// Drives a future that calls users' code on a thread of the pool. Dropping this future ends it at
/// its next wait.
pub(crate) async fn drive<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Result<T> {
    if in_place() {
        return Ok(work.await);
    }
    let (mut sender, receiver) = oneshot::channel();
    let runtime = Handle::current();
    POOL.start(Box::new(move || {
        runtime.block_on(async move {
            let done = tokio::select! { biased;
                () = sender.closed() => return,
                done = work => done,
            };
            // An error means that the caller no longer waits.
            let _ = sender.send(done);
        });
    }));
    receiver.await.map_err(|_| ended())
}

fn ended() -> Error {
    Error::new(Kind::Stopped, "running a projection's code: its thread ended; see the log")
}

impl Pool {
    fn start(&'static self, job: Job) {
        let mut state = self.lock();
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() {
            self.changed.notify_one();
            return;
        }
        drop(state);
        let started = thread::Builder::new().name("leftfold-fold".to_owned()).spawn(|| self.work());
        if let Err(error) = started {
            tracing::warn!(%error, "no thread for a projection's code, waiting for a free one");
            // If no thread is left to take the job, drop it with its sender, so that the caller
            // gets an error.
            let mut state = self.lock();
            if state.idle == 0 {
                state.jobs.pop_back();
            }
        }
    }

    fn work(&self) {
        IS_OURS.set(true);
        loop {
            let mut state = self.lock();
            let job = loop {
                if let Some(job) = state.jobs.pop_front() {
                    break job;
                }
                state.idle += 1;
                let (waited, timeout) =
                    self.changed.wait_timeout(state, KEEP_ALIVE).unwrap_or_else(PoisonError::into_inner);
                state = waited;
                state.idle -= 1;
                if timeout.timed_out() && state.jobs.is_empty() {
                    return;
                }
            };
            drop(state);
            // Panics of users' code are caught where it is called; this catches the rest.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn code_that_never_returns_holds_up_nobody() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (release, wait) = mpsc::channel::<()>();
        runtime.block_on(async {
            let stuck = tokio::spawn(run(move || wait.recv().is_ok()));
            for round in 0..100 {
                assert_eq!(run(move || round).await.unwrap(), round);
                assert_eq!(drive(async move { round }).await.unwrap(), round);
            }
            assert!(!stuck.is_finished());
            release.send(()).unwrap();
            assert!(stuck.await.unwrap().unwrap());
        });
    }

    #[test]
    fn a_panic_is_told_and_the_next_call_works() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let error = run(|| -> u8 { panic!("on purpose") }).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Stopped);
            assert_eq!(run(|| 7).await.unwrap(), 7);
        });
    }

    #[test]
    fn a_future_whose_caller_has_gone_ends_at_its_next_wait() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let (begun, is_begun) = oneshot::channel();
            let (held, gone) = oneshot::channel::<()>();
            let driven = tokio::spawn(drive(async move {
                let _held = held;
                let _ = begun.send(());
                std::future::pending::<()>().await;
            }));
            is_begun.await.unwrap();
            driven.abort();
            assert!(gone.await.is_err());
        });
    }
}
