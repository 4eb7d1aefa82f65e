//! Planners and runners that are stopped until others have taken over.

use std::collections::BTreeMap;
use std::time::Duration;

use leftfold::react::{Query, State, Task};
use tokio::time::Instant;

use super::attacker::Attacker;
use super::kills::{MOST_MISSES, missed};
use super::stops::REPLACED;
use crate::crew::pause;
use crate::failure::Failure;
use crate::messages::Action;
use crate::points;
use crate::role::Role;
use crate::signals;
use crate::store::{Place, TestedStore, patiently};

/// Places where a handler is about to have an effect and nothing is locked.
const BEFORE_TRANSACTION: Place =
    Place { name: "handler: before its transaction", role: Role::Runner, passes: &[points::BEGIN] };
const BEFORE_EFFECT: Place =
    Place { name: "handler: before its effect", role: Role::Runner, passes: &[points::EFFECT] };

/// A stopped process that is not replaced in this time holds a lock on the store, if the store has
/// locks. One of its threads was writing when it stopped.
const PLANNER_LOCKED: Duration = Duration::from_secs(7);
const RUNNER_LOCKED: Duration = Duration::from_secs(3);

impl<S: TestedStore> Attacker<'_, S> {
    /// Stops a planner that has read changes until others have all its leases. It then goes on with
    /// the old changes.
    pub(super) async fn stop_planner(&mut self) -> Result<(), Failure> {
        for _ in 0..MOST_MISSES {
            let at = self.leader(None).await?;
            let place = self.crew.store().before_plan();
            if !self.crew.aim(at, place, 1 + self.dice.below(4), Action::Wait).await? {
                continue;
            }
            self.stop_there(at).await?;
            let name = self.crew.members[at].name.clone();
            let led: Vec<_> = patiently::<S, _, _>(|| self.store.leaders()).await?;
            let led: Vec<_> =
                led.into_iter().filter(|(_, owner)| *owner == name).map(|(lease, _)| lease).collect();
            let begun = Instant::now();
            // Comparisons have leases, too. A finished comparison has no next owner.
            let lasting = |lease: &&String| !lease.starts_with("comparison");
            let is_locked = loop {
                self.crew.tend().await?;
                let now: BTreeMap<_, _> =
                    patiently::<S, _, _>(|| self.store.leaders()).await?.into_iter().collect();
                let is_replaced = |lease: &String| now.get(lease).is_some_and(|owner| *owner != name);
                if led.iter().filter(lasting).all(is_replaced) {
                    break false;
                }
                if S::LOCKS && begun.elapsed() > PLANNER_LOCKED {
                    break true;
                }
                if begun.elapsed() > REPLACED {
                    let message =
                        format!("I10: no process took over the plans of {name}, stopped for {REPLACED:?}");
                    return Err(Failure::Violated(vec![message]));
                }
                pause().await;
            };
            self.crew.resume(at).await?;
            if is_locked {
                self.tally.stopped_with_a_lock += 1;
                continue;
            }
            self.tally.zombies_that_plan += 1;
            return Ok(());
        }
        Err(missed(self.crew.store().before_plan()))
    }

    /// Stops a runner that is about to have an effect until others have claimed its tasks.
    pub(super) async fn stop_runner(&mut self) -> Result<(), Failure> {
        let place = if self.dice.happens(700) { &BEFORE_TRANSACTION } else { &BEFORE_EFFECT };
        for _ in 0..MOST_MISSES {
            let at = self.victim(Role::Runner).await?;
            if !self.crew.aim(at, place, 1 + self.dice.below(4), Action::Wait).await? {
                continue;
            }
            self.stop_there(at).await?;
            let name = self.crew.members[at].name.clone();
            let held: Vec<_> = self.claimed().await?;
            let is_held = |task: &Task| {
                task.owner.as_ref().is_some_and(|owner| self.crew.find_claimant(owner) == Some(at))
            };
            let held: Vec<_> = held.into_iter().filter(is_held).collect();
            let begun = Instant::now();
            let is_locked = loop {
                self.crew.tend().await?;
                let keys: Vec<_> = held.iter().map(|task| task.key.clone()).collect();
                let now = patiently::<S, _, _>(|| self.store.load_tasks(keys.clone())).await?;
                let is_taken = |task: &Task| {
                    now.iter().find(|one| one.key == task.key).is_none_or(|one| one.epoch > task.epoch)
                };
                if held.iter().all(is_taken) {
                    break false;
                }
                if S::LOCKS && begun.elapsed() > RUNNER_LOCKED {
                    break true;
                }
                if begun.elapsed() > REPLACED {
                    let message =
                        format!("I10: no process took over the tasks of {name}, stopped for {REPLACED:?}");
                    return Err(Failure::Violated(vec![message]));
                }
                pause().await;
            };
            self.crew.resume(at).await?;
            self.tally.stopped_with_a_lock += u64::from(is_locked);
            if !held.is_empty() && !is_locked {
                self.tally.zombies_that_run += 1;
                return Ok(());
            }
        }
        Err(missed(place))
    }

    /// Stops a member that waits at a place, and waits until it has stopped.
    async fn stop_there(&mut self, at: usize) -> Result<(), Failure> {
        let pid = self.crew.members[at].pid()?;
        signals::stop(pid).map_err(|error| self.failed("stopping", at, error))?;
        while !signals::is_stopped(pid).map_err(|error| self.failed("stopping", at, error))? {
            self.crew.tend().await?;
            pause().await;
        }
        Ok(())
    }

    async fn claimed(&self) -> Result<Vec<Task>, Failure> {
        let query = Query { states: vec![State::Running, State::Changed], ..Query::default() };
        Ok(patiently::<S, _, _>(|| self.store.list_tasks(query.clone(), None, 10_000)).await?)
    }
}
