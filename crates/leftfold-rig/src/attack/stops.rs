//! Workers that are stopped for longer than their lease.

use std::time::Duration;

use leftfold::{Collection, Mark};
use tokio::time::{Instant, sleep};

use super::attacker::Attacker;
use super::kills::{BREATHER, MOST_MISSES};
use crate::crew::pause;
use crate::failure::Failure;
use crate::messages::Action;
use crate::signals;
use crate::store::{TestedStore, patiently};

/// A stopped worker that is not replaced in this time holds a lock on the store, if the store has
/// locks.
const LOCKED: Duration = Duration::from_secs(2);
/// Without a lock, a stopped worker must be replaced within this time, even if a server was killed.
pub(super) const REPLACED: Duration = Duration::from_secs(15);

/// The second step with a stopped process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Resume,
    Kill,
}

/// The result of stopping a process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stopped {
    /// Another process took over and made progress.
    Replaced,
    /// It held a lock, so no process could take over.
    Locked,
    /// It no longer had a lease.
    Idle,
}

impl<S: TestedStore> Attacker<'_, S> {
    /// Stops a worker with a lease until another one has taken over and made progress. Then resumes
    /// or kills the worker.
    pub(super) async fn stop(&mut self, with_batch: bool, then: Then) -> Result<(), Failure> {
        for _ in 0..MOST_MISSES {
            let at = self.holder().await?;
            // A worker that waits with its batch holds no lock.
            if with_batch {
                let place = self.crew.store().before_batch();
                if !self.crew.aim(at, place, 1 + self.dice.below(4), Action::Wait).await? {
                    continue;
                }
            } else {
                sleep(self.dice.time(BREATHER)).await;
            }
            let stopping = signals::stop(self.crew.members[at].pid()?);
            stopping.map_err(|error| self.failed("stopping", at, error))?;
            let stopped = self.outlast(at).await?;
            if stopped == Stopped::Locked {
                self.tally.stopped_with_a_lock += 1;
            }
            if then == Then::Kill {
                self.crew.replace(at, false).await?;
                self.tally.kills_while_stopped += 1;
                self.killed();
                return Ok(());
            }
            self.crew.resume(at).await?;
            if stopped == Stopped::Replaced {
                let zombies =
                    if with_batch { &mut self.tally.zombies_with_a_batch } else { &mut self.tally.zombies };
                *zombies += 1;
                return Ok(());
            }
        }
        let message = format!("I10: {MOST_MISSES} workers were stopped, and none was replaced");
        Err(Failure::Violated(vec![message]))
    }

    /// Waits until another worker has taken over from a stopped one and made progress.
    async fn outlast(&mut self, at: usize) -> Result<Stopped, Failure> {
        let (pid, name) = (self.crew.members[at].pid()?, self.crew.members[at].name.clone());
        while !signals::is_stopped(pid).map_err(|error| self.failed("stopping", at, error))? {
            self.crew.tend().await?;
            pause().await;
        }
        let mut held = Vec::new();
        for (projection, owner) in self.leases().await? {
            if owner == name {
                let mark = self.mark(&projection).await?;
                held.push((projection, mark));
            }
        }
        if held.is_empty() {
            return Ok(Stopped::Idle);
        }
        let begun = Instant::now();
        loop {
            self.crew.tend().await?;
            let leases = self.leases().await?;
            let mut replaced = true;
            for (projection, before) in &held {
                let by_another = leases.iter().any(|(leased, owner)| leased == projection && *owner != name);
                replaced &= by_another && self.mark(projection).await? != *before;
            }
            if replaced {
                return Ok(Stopped::Replaced);
            }
            if S::LOCKS && begun.elapsed() > LOCKED {
                return Ok(Stopped::Locked);
            }
            if begun.elapsed() > REPLACED {
                let message = format!("I10: no worker took over from {name}, stopped for {REPLACED:?}");
                return Err(Failure::Violated(vec![message]));
            }
            pause().await;
        }
    }

    async fn mark(&self, projection: &str) -> Result<Mark, Failure> {
        let projection = Collection::new(projection)?;
        Ok(patiently::<S, _, _>(|| self.store.checkpoint(&projection)).await?.mark)
    }
}
