//! The choice of the process to attack.

use tokio::time::Instant;

use super::attacker::Attacker;
use crate::crew::{PATIENCE, pause};
use crate::failure::Failure;
use crate::role::Role;
use crate::store::{TestedStore, patiently};

/// The lease of the planner for items.
pub(super) const FEED_OF_ITEMS: &str = "feed of plain items";

impl<S: TestedStore> Attacker<'_, S> {
    /// Waits for a worker with a lease and returns it.
    pub(super) async fn holder(&mut self) -> Result<usize, Failure> {
        let begun = Instant::now();
        loop {
            self.crew.tend().await?;
            let leases = self.leases().await?;
            let holders: Vec<_> = leases.iter().filter_map(|(_, owner)| self.crew.find(owner)).collect();
            if let Some(at) = self.dice.pick(&holders) {
                return Ok(*at);
            }
            if begun.elapsed() > PATIENCE {
                let message = format!("I10: no worker had a lease for {PATIENCE:?}");
                return Err(Failure::Violated(vec![message]));
            }
            pause().await;
        }
    }

    /// Returns a member that reaches the places of a role.
    pub(super) async fn victim(&mut self, role: Role) -> Result<usize, Failure> {
        match role {
            Role::Worker => self.holder().await,
            // There is always something to plan for items.
            Role::Planner => self.leader(Some(FEED_OF_ITEMS)).await,
            role => self.any(role),
        }
    }

    pub(super) fn any(&self, role: Role) -> Result<usize, Failure> {
        self.crew
            .any(role)
            .ok_or_else(|| Failure::rig("choosing a process to kill", "no process has this role"))
    }

    /// Returns the current leases. Counts the leases whose owner has changed.
    pub(super) async fn leases(&mut self) -> Result<Vec<(String, String)>, Failure> {
        let leases = patiently::<S, _, _>(|| self.store.holders()).await?;
        for (projection, owner) in &leases {
            let before = self.owners.insert(projection.clone(), owner.clone());
            self.tally.takeovers += u64::from(before.is_some_and(|before| before != *owner));
        }
        Ok(leases)
    }

    /// Waits for a planner and returns it. `feed` restricts the choice to the planner with this
    /// lease.
    pub(super) async fn leader(&mut self, feed: Option<&str>) -> Result<usize, Failure> {
        let begun = Instant::now();
        loop {
            self.crew.tend().await?;
            let leaders = patiently::<S, _, _>(|| self.store.leaders()).await?;
            let fits = |lease: &str| feed.map_or(lease.starts_with("feed of"), |feed| lease == feed);
            let leaders = leaders.iter().filter(|(lease, _)| fits(lease));
            let leaders: Vec<_> = leaders.filter_map(|(_, owner)| self.crew.find(owner)).collect();
            if let Some(at) = self.dice.pick(&leaders) {
                return Ok(*at);
            }
            if begun.elapsed() > PATIENCE {
                return Err(Failure::Violated(vec![format!("I10: no process planned for {PATIENCE:?}")]));
            }
            pause().await;
        }
    }
}
