//! Attacks on the planners and runners of reactions, and the time until others take over.

use std::time::Duration;

use leftfold::DocumentId;
use leftfold::react::{State, Task, TaskKey};
use tokio::time::{Instant, sleep};

use super::attacker::Attacker;
use super::kills::BREATHER;
use super::victims::FEED_OF_ITEMS;
use crate::crew::PATIENCE;
use crate::failure::Failure;
use crate::plan::ReactorAttack;
use crate::react::{GARBLED, HOLD, ITEM, ItemKind};
use crate::role::Role;
use crate::store::{TestedStore, patiently};

impl<S: TestedStore> Attacker<'_, S> {
    pub(super) async fn attack_reactor(&mut self, attack: ReactorAttack) -> Result<(), Failure> {
        match attack {
            ReactorAttack::KillAt(place) => {
                self.kill_at_place(place).await?;
                self.tally.reactors_killed += 1;
            }
            ReactorAttack::Kill => {
                sleep(self.dice.time(BREATHER)).await;
                let role = self.dice.pick(&[Role::Planner, Role::Runner]).copied().unwrap_or(Role::Runner);
                let at = self.victim(role).await?;
                self.crew.tend().await?;
                self.crew.replace(at, false).await?;
                self.tally.reactors_killed += 1;
                self.tally.reactors_killed_at_any_moment += 1;
            }
            ReactorAttack::StopPlanner => self.stop_planner().await?,
            ReactorAttack::StopRunner => self.stop_runner().await?,
            ReactorAttack::Poison => self.poison().await?,
            ReactorAttack::Enlarge => self.enlarge().await?,
            ReactorAttack::Garble => self.garble().await?,
            ReactorAttack::Mend => {
                let item = self.item_writer.new_item();
                self.item_writer.put(self.store, GARBLED, Some(item)).await?;
            }
            ReactorAttack::TakeOver => {
                self.take_over_planner().await?;
                self.take_over_runner().await?;
            }
        }
        Ok(())
    }

    /// Kills the planner for items and measures the time until a new item is planned.
    async fn take_over_planner(&mut self) -> Result<(), Failure> {
        let at = self.leader(Some(FEED_OF_ITEMS)).await?;
        let killed = Instant::now();
        self.crew.replace_as(at, false, None).await?;
        self.tally.reactors_killed += 1;
        let item = self.item_writer.new_item();
        self.item_writer.put(self.store, "next", Some(item)).await?;
        self.wait_for("next", ITEM, killed, |_| true).await?;
        self.tally.planned_after = self.tally.planned_after.max(killed.elapsed().as_secs_f64());
        Ok(())
    }

    /// Kills the runner of a task that would never end, and measures the time until another one has
    /// run it.
    async fn take_over_runner(&mut self) -> Result<(), Failure> {
        let item = self.item_writer.new_of(ItemKind::Held);
        self.item_writer.put(self.store, HOLD, Some(item)).await?;
        let held = self.wait_for(HOLD, HOLD, Instant::now(), |task| task.state == State::Running).await?;
        let owner = held.owner.unwrap_or_default();
        let at = self
            .crew
            .find_claimant(&owner)
            .ok_or_else(|| Failure::rig("looking for the runner of a task", &owner))?;
        let killed = Instant::now();
        self.crew.replace_as(at, false, None).await?;
        self.tally.reactors_killed += 1;
        self.wait_for(HOLD, HOLD, killed, |task| task.state == State::Done).await?;
        self.tally.run_after = self.tally.run_after.max(killed.elapsed().as_secs_f64());
        Ok(())
    }

    /// Waits until a task exists and satisfies `is_so`.
    pub(super) async fn wait_for(
        &mut self,
        document: &str,
        reaction: &str,
        since: Instant,
        is_so: impl Fn(&Task) -> bool,
    ) -> Result<Task, Failure> {
        loop {
            self.crew.tend().await?;
            if let Some(task) = self.task(reaction, document).await?.filter(|task| is_so(task)) {
                return Ok(task);
            }
            if since.elapsed() > PATIENCE {
                let message = format!("I10: {reaction} for {document} made no progress for {PATIENCE:?}");
                return Err(Failure::Violated(vec![message]));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub(super) async fn task(&self, reaction: &str, document: &str) -> Result<Option<Task>, Failure> {
        let key = TaskKey { reaction: reaction.to_owned(), document: DocumentId::new(document)? };
        Ok(patiently::<S, _, _>(|| self.store.load_tasks(vec![key.clone()])).await?.pop())
    }
}
