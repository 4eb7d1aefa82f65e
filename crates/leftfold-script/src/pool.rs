//! The worker processes, shared by all scripts of this process.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leftfold::budget::{Budget, Share, Use};

use crate::ScriptFault;
use crate::process::{Process, unavailable};

/// The approximate memory of a worker without a script.
const OWN_BYTES: usize = 32 << 20;

/// A pool of worker processes for scripts. A worker can be killed whatever its script does.
///
/// The pool has as many workers as there are cores, at least two, for any number of scripts. They
/// are started on demand. Slow scripts get at most half of them, so that quick ones wait only for
/// milliseconds.
#[derive(Clone)]
pub struct Workers(Arc<Shared>);

struct Shared {
    program: PathBuf,
    arguments: Vec<String>,
    most: usize,
    budget: Budget,
    state: Mutex<State>,
    changed: Condvar,
    /// The slowness of each script, also under an earlier configuration.
    slowness: Mutex<HashMap<u64, Arc<AtomicU32>>>,
}

#[derive(Default)]
struct State {
    idle: Vec<PooledProcess>,
    busy: usize,
    /// The number of busy workers that run slow scripts.
    slow: usize,
    /// The waiting callers, in order of arrival.
    line: VecDeque<Place>,
    next: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    number: u64,
    is_slow: bool,
}

/// A process, and its share of the memory budget.
struct PooledProcess {
    process: Process,
    share: Share,
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("program", &self.0.program).finish_non_exhaustive()
    }
}

impl Workers {
    /// Creates a pool whose workers run this program with these arguments. When started so, the
    /// program must call [`run_worker`](crate::run_worker), and nothing else.
    ///
    /// The memory of the processes counts in the budget.
    pub fn new(
        program: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = String>,
        budget: Budget,
    ) -> Self {
        let most = std::thread::available_parallelism().map_or(2, usize::from).max(2);
        Self(Arc::new(Shared {
            program: program.into(),
            arguments: arguments.into_iter().collect(),
            most,
            budget,
            state: Mutex::default(),
            changed: Condvar::new(),
            slowness: Mutex::default(),
        }))
    }

    /// Returns the slowness of a script, which all scripts with the same text and limits share.
    pub(crate) fn slowness(&self, script: u64) -> Arc<AtomicU32> {
        const MOST: usize = 10_000;
        let mut known = self.0.slowness.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() > MOST {
            known.retain(|_, slowness| Arc::strong_count(slowness) > 1);
        }
        Arc::clone(known.entry(script).or_default())
    }

    /// Waits in line for a worker for one job. Prefers a worker that has the script loaded.
    pub(crate) fn worker(
        &self,
        script: u64,
        is_slow: bool,
        is_fresh: bool,
    ) -> Result<Lease<'_>, ScriptFault> {
        let mut state = self.0.lock();
        let place = Place { number: state.next, is_slow };
        state.next += 1;
        state.line.push_back(place);
        while !state.may_go(place, self.0.most) {
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.line.retain(|waiting| *waiting != place);
        state.busy += 1;
        state.slow += usize::from(is_slow);
        let known = state.idle.iter().position(|pooled| pooled.process.has(script));
        let pooled = known.or(state.idle.len().checked_sub(1)).map(|at| state.idle.swap_remove(at));
        drop(state);
        // Other callers in line may be able to go as well.
        self.0.changed.notify_all();
        let mut lease = Lease { shared: &self.0, pooled, is_slow };
        if is_fresh {
            lease.pooled = None;
        }
        if lease.pooled.is_none() {
            let process = self.0.spawn().map_err(|error| unavailable(&error))?;
            lease.pooled = Some(PooledProcess { process, share: self.0.budget.take(Use::Fold, 0) });
        }
        Ok(lease)
    }
}

impl Shared {
    /// Starts a process, with retries. A machine without room for one may have it soon, and no
    /// document should be parked for that.
    fn spawn(&self) -> io::Result<Process> {
        const TRIES: u32 = 50;
        const PAUSE: Duration = Duration::from_millis(100);
        for _ in 1..TRIES {
            match Process::spawn(&self.program, &self.arguments) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(%error, "starting a worker process for scripts failed; retrying");
                    std::thread::sleep(PAUSE);
                }
                spawned => return spawned,
            }
        }
        Process::spawn(&self.program, &self.arguments)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns whether a worker is free for this place, and no caller before it could take it.
    fn may_go(&self, place: Place, most: usize) -> bool {
        let slow_is_full = self.slow >= (most / 2).max(1);
        let could_go = |place: &Place| !(place.is_slow && slow_is_full);
        let first = self.line.iter().find(|place| could_go(place));
        self.busy < most && first == Some(&place)
    }
}

/// A worker leased for one job. Dropping the lease returns it.
pub(crate) struct Lease<'a> {
    shared: &'a Shared,
    pooled: Option<PooledProcess>,
    is_slow: bool,
}

impl Lease<'_> {
    /// Kills the worker instead of returning it.
    pub(crate) fn discard(mut self) {
        self.pooled = None;
    }

    /// Charges the worker's memory to the budget. Kills the worker if it has more than a script may
    /// take.
    pub(crate) fn weigh(mut self, most: usize) {
        let Some(pooled) = &mut self.pooled else { return };
        let bytes = pooled.process.memory().unwrap_or(0);
        // The memory is in use already: charge it even if the budget has no room.
        let share = self.shared.budget.take(Use::Fold, bytes);
        pooled.share = share;
        if bytes > most.saturating_add(OWN_BYTES) {
            self.pooled = None;
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.busy -= 1;
        state.slow -= usize::from(self.is_slow);
        state.idle.extend(self.pooled.take());
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl Deref for Lease<'_> {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.pooled.as_ref().expect("a lease has a process until it is dropped").process
    }
}

impl DerefMut for Lease<'_> {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.pooled.as_mut().expect("a lease has a process until it is dropped").process
    }
}
