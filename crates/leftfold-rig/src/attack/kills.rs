//! Kills of processes and servers.

use std::time::Duration;

use tokio::time::sleep;

use super::attacker::Attacker;
use crate::failure::Failure;
use crate::messages::Action;
use crate::role::Role;
use crate::store::{Environment as _, Place, TestedStore, patiently};

/// The longest time before a kill at a random moment.
pub(super) const BREATHER: Duration = Duration::from_millis(300);
/// The longest time from releasing a process to its commit until the server is killed. The commit
/// is then about to be sent, in flight, or done.
const ON_ITS_WAY: Duration = Duration::from_millis(15);
/// The number of times that a process may miss the place of an attack.
pub(super) const MOST_MISSES: u32 = 30;

impl<S: TestedStore> Attacker<'_, S> {
    /// Kills a process at a place. A worker or a planner needs a lease to get there.
    pub(super) async fn kill_at_place(&mut self, place: &'static Place) -> Result<(), Failure> {
        for _ in 0..MOST_MISSES {
            let at = self.victim(place.role).await?;
            patiently::<S, _, _>(|| self.store.provoke(place)).await?;
            // A process reaches some of these places only once in two seconds.
            let times = 1 + self.dice.below(if place.role.reacts() { 2 } else { 4 });
            if self.crew.aim(at, place, times, Action::Die).await? {
                self.crew.replace(at, true).await?;
                *self.tally.kills_at.entry(place.name).or_default() += 1;
                return Ok(());
            }
            if place.role == Role::Operator {
                // Workers with the fixed code leave nothing to retry or refold.
                self.crew.restart_with_old_code().await?;
            }
        }
        Err(missed(place))
    }

    pub(super) async fn kill(&mut self) -> Result<(), Failure> {
        let role = match self.dice.below(10) {
            0 => Role::Operator,
            1 => Role::Producer,
            2 => Role::Feeder,
            _ => Role::Worker,
        };
        sleep(self.dice.time(BREATHER)).await;
        let at = if role == Role::Worker && self.dice.happens(700) {
            self.holder().await?
        } else {
            self.any(role)?
        };
        self.crew.tend().await?;
        self.crew.replace(at, false).await?;
        self.tally.kills_at_any_moment += 1;
        self.killed();
        Ok(())
    }

    /// Kills the primary server. If `at_commit` is set, it first releases a process that is about
    /// to commit.
    pub(super) async fn kill_server(&mut self, at_commit: bool) -> Result<(), Failure> {
        let server = self.environment.primary().await?;
        let mut sent = false;
        if at_commit && let Some(place) = self.dice.pick(&self.crew.store().commits()) {
            let at = self.victim(place.role).await?;
            sent = self.crew.aim(at, place, 1 + self.dice.below(4), Action::Wait).await?;
            if sent {
                self.crew.resume(at).await?;
                sleep(self.dice.time(ON_ITS_WAY)).await;
            }
        } else {
            sleep(self.dice.time(BREATHER)).await;
        }
        self.environment.kill(server).await?;
        self.tally.servers_killed += 1;
        self.tally.servers_killed_at_commit += u64::from(sent);
        self.killed();
        Ok(())
    }

    pub(super) fn killed(&mut self) {
        self.tally.kills += 1;
        self.bar.inc(1);
    }
}

/// Returns the failure of a rig whose processes do not reach a place.
pub(super) fn missed(place: &Place) -> Failure {
    let tries = format!("no process reached it in {MOST_MISSES} attempts");
    Failure::rig(format!("attacking a {} at {:?}", place.role.name(), place.name), tries)
}
