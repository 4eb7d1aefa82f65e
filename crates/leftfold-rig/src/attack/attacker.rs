//! The attacks of a round, one after the other.

use std::collections::HashMap;

use indicatif::ProgressBar;
use leftfold_sim::dice::Dice;

use super::stops::Then;
use crate::crew::Crew;
use crate::failure::Failure;
use crate::plan::Attack;
use crate::react::ItemWriter;
use crate::store::TestedStore;
use crate::tally::Tally;

/// The processes, and the state of the attacks on them.
pub(crate) struct Attacker<'a, S: TestedStore> {
    pub(super) environment: &'a S::Environment,
    pub(super) store: &'a S,
    pub(super) crew: &'a mut Crew,
    pub(super) item_writer: &'a ItemWriter,
    pub(super) dice: &'a Dice,
    pub(super) tally: &'a mut Tally,
    pub(super) bar: &'a ProgressBar,
    /// The last known owner of each lease.
    pub(super) owners: HashMap<String, String>,
}

impl<'a, S: TestedStore> Attacker<'a, S> {
    pub(crate) fn new(
        environment: &'a S::Environment,
        store: &'a S,
        crew: &'a mut Crew,
        item_writer: &'a ItemWriter,
        (dice, tally, bar): (&'a Dice, &'a mut Tally, &'a ProgressBar),
    ) -> Self {
        Self { environment, store, crew, item_writer, dice, tally, bar, owners: HashMap::new() }
    }

    /// Carries out the attacks.
    pub(crate) async fn run(mut self, attacks: &[Attack]) -> Result<(), Failure> {
        for attack in attacks {
            match *attack {
                Attack::KillAt(place) => {
                    self.kill_at_place(place).await?;
                    self.killed();
                }
                Attack::Kill => self.kill().await?,
                Attack::KillStopped => self.stop(false, Then::Kill).await?,
                Attack::Zombie { with_batch } => self.stop(with_batch, Then::Resume).await?,
                Attack::KillServer { at_commit } => self.kill_server(at_commit).await?,
                Attack::Reactor(attack) => self.attack_reactor(attack).await?,
            }
            self.crew.tend().await?;
        }
        Ok(())
    }

    pub(super) fn failed(&self, doing: &str, at: usize, error: rustix::io::Errno) -> Failure {
        Failure::rig(format!("{doing} {}", self.crew.members[at].name), error)
    }
}
