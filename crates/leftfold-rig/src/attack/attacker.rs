//! The attacks of a round, one after the other.

use std::collections::HashMap;

use indicatif::ProgressBar;
use leftfold_sim::dice::Dice;

use super::stops::Then;
use crate::crew::Crew;
use crate::failure::Failure;
use crate::plan::Act;
use crate::react::Garden;
use crate::store::Rigged;
use crate::tally::Tally;

/// The processes, and the state of the attacks on them.
pub(crate) struct Attacker<'a, S: Rigged> {
    pub(super) ground: &'a S::Ground,
    pub(super) store: &'a S,
    pub(super) crew: &'a mut Crew,
    pub(super) garden: &'a Garden,
    pub(super) dice: &'a Dice,
    pub(super) tally: &'a mut Tally,
    pub(super) bar: &'a ProgressBar,
    /// The last known owner of each lease.
    pub(super) owners: HashMap<String, String>,
}

impl<'a, S: Rigged> Attacker<'a, S> {
    pub(crate) fn new(
        ground: &'a S::Ground,
        store: &'a S,
        crew: &'a mut Crew,
        garden: &'a Garden,
        (dice, tally, bar): (&'a Dice, &'a mut Tally, &'a ProgressBar),
    ) -> Self {
        Self { ground, store, crew, garden, dice, tally, bar, owners: HashMap::new() }
    }

    pub(crate) async fn all(mut self, acts: &[Act]) -> Result<(), Failure> {
        for act in acts {
            match *act {
                Act::KillAt(place) => {
                    self.kill_there(place).await?;
                    self.killed();
                }
                Act::Kill => self.kill().await?,
                Act::KillStopped => self.stop(false, Then::Kill).await?,
                Act::Zombie { with_batch } => self.stop(with_batch, Then::Resume).await?,
                Act::KillServer { at_commit } => self.kill_server(at_commit).await?,
                Act::Reactor(deed) => self.do_to_reactor(deed).await?,
            }
            self.crew.tend().await?;
        }
        Ok(())
    }

    pub(super) fn failed(&self, doing: &str, at: usize, error: rustix::io::Errno) -> Failure {
        Failure::rig(format!("{doing} {}", self.crew.members[at].name), error)
    }
}
