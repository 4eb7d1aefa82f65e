//! Attacks on the processes and servers: kills at places and at random moments, and zombies.

mod reactors;

use std::collections::HashMap;
use std::time::Duration;

use indicatif::ProgressBar;
use leftfold::{Collection, Mark};
use leftfold_sim::dice::Dice;
use tokio::time::{Instant, sleep};

use self::reactors::FEED_OF_ITEMS;
use crate::crew::{Crew, PATIENCE, pause};
use crate::failure::Failure;
use crate::messages::Blow;
use crate::plan::Act;
use crate::react::Garden;
use crate::role::Role;
use crate::signals;
use crate::store::{Ground as _, Place, Rigged, patiently};
use crate::tally::Tally;

/// The longest time before a kill at a random moment.
const BREATHER: Duration = Duration::from_millis(300);
/// A stopped worker that is not replaced in this time holds a lock on the store, if the store has
/// locks.
const LOCKED: Duration = Duration::from_secs(2);
/// Without a lock, a stopped worker must be replaced within this time, even if a server was killed.
const REPLACED: Duration = Duration::from_secs(15);
/// The longest time from releasing a process to its commit until the server is killed. The commit
/// is then about to be sent, in flight, or done.
const ON_ITS_WAY: Duration = Duration::from_millis(15);
/// The number of times that a process may miss the place of an attack.
const MOST_MISSES: u32 = 30;

/// The processes, and the state of the attacks on them.
pub(crate) struct Hurt<'a, S: Rigged> {
    ground: &'a S::Ground,
    store: &'a S,
    crew: &'a mut Crew,
    garden: &'a Garden,
    dice: &'a Dice,
    tally: &'a mut Tally,
    bar: &'a ProgressBar,
    /// The last known owner of each lease.
    owners: HashMap<String, String>,
}

/// The second step with a stopped process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
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

impl<'a, S: Rigged> Hurt<'a, S> {
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

    /// Kills a process at a place. A worker or a planner needs a lease to get there.
    async fn kill_there(&mut self, place: &'static Place) -> Result<(), Failure> {
        for _ in 0..MOST_MISSES {
            let at = self.victim(place.role).await?;
            patiently::<S, _, _>(|| self.store.provoke(place)).await?;
            // A process reaches some of these places only once in two seconds.
            let times = 1 + self.dice.below(if place.role.reacts() { 2 } else { 4 });
            if self.crew.aim(at, place, times, Blow::Die).await? {
                self.crew.replace(at, true).await?;
                *self.tally.kills_at.entry(place.name).or_default() += 1;
                return Ok(());
            }
            if place.role == Role::Operator {
                // Workers with the fixed code leave nothing to retry or refold.
                self.crew.put_back().await?;
            }
        }
        Err(missed(place))
    }

    async fn kill(&mut self) -> Result<(), Failure> {
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
    async fn kill_server(&mut self, at_commit: bool) -> Result<(), Failure> {
        let server = self.ground.primary().await?;
        let mut sent = false;
        if at_commit && let Some(place) = self.dice.pick(&self.crew.store().commits()) {
            let at = self.victim(place.role).await?;
            sent = self.crew.aim(at, place, 1 + self.dice.below(4), Blow::Wait).await?;
            if sent {
                self.crew.resume(at).await?;
                sleep(self.dice.time(ON_ITS_WAY)).await;
            }
        } else {
            sleep(self.dice.time(BREATHER)).await;
        }
        self.ground.kill(server).await?;
        self.tally.servers_killed += 1;
        self.tally.servers_killed_at_commit += u64::from(sent);
        self.killed();
        Ok(())
    }

    fn killed(&mut self) {
        self.tally.kills += 1;
        self.bar.inc(1);
    }

    /// Stops a worker with a lease until another one has taken over and made progress. Then resumes
    /// or kills the worker.
    async fn stop(&mut self, with_batch: bool, then: Then) -> Result<(), Failure> {
        for _ in 0..MOST_MISSES {
            let at = self.holder().await?;
            // A worker that waits with its batch holds no lock.
            if with_batch {
                let place = self.crew.store().before_batch();
                if !self.crew.aim(at, place, 1 + self.dice.below(4), Blow::Wait).await? {
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
        let message = format!("I10: {MOST_MISSES} workers were stopped and none was replaced");
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
                let message = format!("I10: nobody has taken the place of {name}, stopped for {REPLACED:?}");
                return Err(Failure::Violated(vec![message]));
            }
            pause().await;
        }
    }

    async fn mark(&self, projection: &str) -> Result<Mark, Failure> {
        let projection = Collection::new(projection)?;
        Ok(patiently::<S, _, _>(|| self.store.checkpoint(&projection)).await?.mark)
    }

    /// Waits for a worker with a lease and returns it.
    async fn holder(&mut self) -> Result<usize, Failure> {
        let begun = Instant::now();
        loop {
            self.crew.tend().await?;
            let leases = self.leases().await?;
            let holders: Vec<_> = leases.iter().filter_map(|(_, owner)| self.crew.find(owner)).collect();
            if let Some(at) = self.dice.pick(&holders) {
                return Ok(*at);
            }
            if begun.elapsed() > PATIENCE {
                let message = format!("I10: nobody has had a lease for {PATIENCE:?}");
                return Err(Failure::Violated(vec![message]));
            }
            pause().await;
        }
    }

    /// Returns a member that reaches the places of a role.
    async fn victim(&mut self, role: Role) -> Result<usize, Failure> {
        match role {
            Role::Worker => self.holder().await,
            // There is always something to plan for items.
            Role::Planner => self.leader(Some(FEED_OF_ITEMS)).await,
            role => self.any(role),
        }
    }

    fn any(&self, role: Role) -> Result<usize, Failure> {
        self.crew.any(role).ok_or_else(|| Failure::rig("choosing whom to kill", "there is nobody"))
    }

    /// Returns the current leases. Counts the leases whose owner has changed.
    async fn leases(&mut self) -> Result<Vec<(String, String)>, Failure> {
        let leases = patiently::<S, _, _>(|| self.store.holders()).await?;
        for (projection, owner) in &leases {
            let before = self.owners.insert(projection.clone(), owner.clone());
            self.tally.takeovers += u64::from(before.is_some_and(|before| before != *owner));
        }
        Ok(leases)
    }

    fn failed(&self, doing: &str, at: usize, error: rustix::io::Errno) -> Failure {
        Failure::rig(format!("{doing} {}", self.crew.members[at].name), error)
    }
}

fn missed(place: &Place) -> Failure {
    let tries = format!("{MOST_MISSES} tries, and none got there");
    Failure::rig(format!("hitting a {} at {:?}", place.role.name(), place.name), tries)
}
