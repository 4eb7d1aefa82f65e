//! One run, decided by its seed.

use std::time::Duration;

use tokio::time::sleep;

use super::setup::World;
use super::sometimes::{BEFORE_CONTENTS, OF_EVENTS, SOMETIMES};
use crate::contents;
use crate::faults::Fault;
use crate::reactions;

/// The result of a run.
#[derive(Debug)]
pub struct WorldRun {
    /// The violations.
    pub violations: Vec<String>,
    /// The trace, if it was requested.
    pub trace: Vec<String>,
    /// The number of times each fault occurred.
    pub met: [u64; Fault::ALL.len()],
    /// The number of appended events.
    pub events: u64,
    /// The number of times each of [`SOMETIMES`] happened.
    pub sometimes: [u64; SOMETIMES.len()],
}

/// Runs a seed in two worlds, each with its own time. The first has events and documents. The
/// second has reactions for even seeds, and documents without events for odd ones.
pub fn run(seed: u64, trace: bool) -> Result<WorldRun, std::io::Error> {
    let mut run = in_own_time(async move { World::drawn(seed, trace).run().await })?;
    let store = in_own_time(async move {
        if seed.is_multiple_of(2) {
            let world = reactions::World::drawn(seed, trace);
            world.run().await;
            world.store
        } else {
            let world = contents::World::drawn(seed, trace);
            world.run().await;
            world.store
        }
    })?;
    let shared = store.shared();
    run.violations.extend(shared.checker.violations());
    run.trace.extend(shared.trace.take());
    run.met.iter_mut().zip(shared.faults.met()).for_each(|(sum, met)| *sum += met);
    run.sometimes[OF_EVENTS.len()..BEFORE_CONTENTS].copy_from_slice(&shared.ledger.sometimes());
    run.sometimes[BEFORE_CONTENTS..].copy_from_slice(&shared.contents.sometimes());
    Ok(run)
}

/// Runs work in its own time, which advances only when all tasks wait.
pub(crate) fn in_own_time<T>(work: impl Future<Output = T>) -> Result<T, std::io::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    Ok(runtime.block_on(async {
        // Timers end on a whole millisecond of the runtime's life. Align the clock with one, so
        // that rounding does not depend on when the runtime was created.
        sleep(Duration::from_millis(1)).await;
        work.await
    }))
}
