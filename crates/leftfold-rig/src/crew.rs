//! The processes: started, given orders, killed and restarted.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leftfold_sim::dice::Dice;
use tokio::time::{Instant, sleep};

use crate::failure::Failure;
use crate::ledger::Ledger;
use crate::member::Member;
use crate::messages::{Action, Order, ReactorCounts};
use crate::role::Role;
use crate::signals;
use crate::store::{Kind, Place};

/// The time that a process has to carry out an order before the rig cancels it.
const AIM: Duration = Duration::from_secs(2);
/// The timeout for everything else.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// All processes. Dropping the crew kills them.
pub(crate) struct Crew {
    pub(crate) members: Vec<Member>,
    /// The counts of reactors that have ended.
    ended_counts: ReactorCounts,
    store: Kind,
    place: String,
    directory: PathBuf,
    seed: u64,
    dice: Dice,
    program: PathBuf,
    ledger: Arc<Mutex<Ledger>>,
}

/// The version of the code that processes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// The code that fails to fold or decode some events.
    Old,
    Fixed,
    /// Either version, at random, as during a rolling deployment.
    Any,
}

impl Crew {
    pub(crate) fn new(
        store: Kind,
        place: String,
        directory: PathBuf,
        seed: u64,
        ledger: Arc<Mutex<Ledger>>,
    ) -> Result<Self, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::rig("looking for this program to start processes", error))?;
        let (members, ended_counts, dice) = (Vec::new(), ReactorCounts::default(), Dice::new(seed));
        Ok(Self { members, ended_counts, store, place, directory, seed, dice, program, ledger })
    }

    /// Starts `count` processes and waits until they are ready.
    pub(crate) async fn start(&mut self, role: Role, count: u64, code: Code) -> Result<(), Failure> {
        for seat in 0..count {
            let member = self.one((role, seat, 0), None, 0, code).await?;
            self.members.push(member);
        }
        Ok(())
    }

    async fn one(
        &self,
        (role, seat, turn): (Role, u64, u64),
        name: Option<String>,
        next_append: u64,
        code: Code,
    ) -> Result<Member, Failure> {
        let (name, seed) = match role {
            // A producer's events are named after it and are the same each time it writes them.
            Role::Producer => (format!("producer-{seat}"), self.seed.wrapping_add(seat << 32)),
            // All feeders deliver the same events, each in its own order.
            Role::Feeder => (format!("feeder-{seat}"), self.seed),
            _ => (name.unwrap_or_else(|| format!("{}-{seat}-{turn}", role.name())), self.dice.next()),
        };
        let fixed = match code {
            Code::Old => false,
            Code::Fixed => true,
            Code::Any => self.dice.happens(400),
        };
        let mut arguments: Vec<OsString> = vec!["--seed".into(), seed.to_string().into()];
        arguments.extend(["--store".into(), self.store.name().into()]);
        arguments.extend(["--place".into(), self.place.clone().into()]);
        arguments.extend(["--directory".into(), self.directory.clone().into()]);
        arguments.extend(fixed.then(|| "--fixed".into()));
        Member::start(&self.program, arguments, (role, seat, turn), name, next_append).await
    }

    /// Returns the counts of reactors that have ended.
    pub(crate) fn ended_counts(&self) -> ReactorCounts {
        self.ended_counts
    }

    /// Returns the seed of the feeders' events.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the kind of store that the processes work on.
    pub(crate) fn store(&self) -> Kind {
        self.store
    }

    /// Returns the index of the member with this name.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.members.iter().position(|member| member.name == name)
    }

    /// Returns the member that holds a claim. The claim's owner is the member's name with a random
    /// suffix.
    pub(crate) fn find_claimant(&self, owner: &str) -> Option<usize> {
        owner.rsplit_once('-').and_then(|(name, _)| self.find(name))
    }

    /// Returns a random member that does the work of a role.
    pub(crate) fn any(&self, role: Role) -> Option<usize> {
        let fits: Vec<_> = (0..self.members.len()).filter(|at| self.members[*at].role.does(role)).collect();
        self.dice.pick(&fits).copied()
    }

    /// Reads the messages of all members. Fails if a member has ended without being killed.
    pub(crate) async fn tend(&mut self) -> Result<(), Failure> {
        for member in &mut self.members {
            member.tend(&self.ledger).await?;
        }
        let wrong = self.ledger.lock().unwrap_or_else(PoisonError::into_inner).wrong.clone();
        if wrong.is_empty() { Ok(()) } else { Err(Failure::Violated(wrong)) }
    }

    /// Makes a member die or wait at a place. Returns whether the member got there in time.
    pub(crate) async fn aim(
        &mut self,
        at: usize,
        place: &Place,
        times: u64,
        action: Action,
    ) -> Result<bool, Failure> {
        let passes = place.passes.iter().map(ToString::to_string).collect();
        let times = u32::try_from(times).unwrap_or(1);
        let order = Order::At { place: place.name.to_owned(), passes, times, action };
        self.members[at].disarmed = false;
        self.members[at].order(&order).await?;
        let begun = Instant::now();
        let mut given_up = false;
        loop {
            self.tend().await?;
            let member = &mut self.members[at];
            if member.reached || member.disarmed {
                return Ok(member.reached);
            }
            if !given_up && begun.elapsed() > AIM {
                given_up = true;
                member.order(&Order::Disarm).await?;
            }
            if begun.elapsed() > PATIENCE {
                return Err(Failure::rig(format!("giving {} an order", member.name), "it does not respond"));
            }
            pause().await;
        }
    }

    /// Resumes a stopped member, including one that waits at a place.
    pub(crate) async fn resume(&mut self, at: usize) -> Result<(), Failure> {
        let member = &mut self.members[at];
        let failed = |error| Failure::rig(format!("resuming {}", member.name), error);
        signals::resume(member.pid()?).map_err(failed)?;
        if std::mem::take(&mut member.reached) {
            member.order(&Order::GoOn).await?;
        }
        Ok(())
    }

    /// Kills a member, or waits until it has killed itself, and starts a successor.
    pub(crate) async fn replace(&mut self, at: usize, by_itself: bool) -> Result<(), Failure> {
        // Under its old name the successor resumes its work at once. Under a new name it must wait
        // until the old lease ends.
        let name = self.dice.happens(400).then(|| self.members[at].name.clone());
        self.replace_as(at, by_itself, name).await
    }

    /// Does the same, with this name or a new one for the successor.
    pub(crate) async fn replace_as(
        &mut self,
        at: usize,
        by_itself: bool,
        name: Option<String>,
    ) -> Result<(), Failure> {
        let member = &mut self.members[at];
        member.kill(by_itself, &self.ledger).await?;
        self.ended_counts += member.counts;
        let code = if member.role == Role::Operator { Code::Fixed } else { Code::Any };
        let (seat, next_append) = ((member.role, member.seat, member.turn + 1), member.next_append);
        self.members[at] = self.one(seat, name, next_append, code).await?;
        Ok(())
    }

    /// Stops all workers and starts others with the old code.
    pub(crate) async fn restart_with_old_code(&mut self) -> Result<(), Failure> {
        for at in 0..self.members.len() {
            let member = &mut self.members[at];
            if member.role == Role::Worker {
                member.end(&self.ledger).await?;
                let seat = (member.role, member.seat, member.turn + 1);
                self.members[at] = self.one(seat, None, 0, Code::Old).await?;
            }
        }
        Ok(())
    }

    /// Stops all members of a role and waits until they have ended.
    pub(crate) async fn end(&mut self, role: Role) -> Result<(), Failure> {
        let of_role = |member: &Member| member.role == role;
        self.members.iter_mut().filter(|member| of_role(member)).for_each(Member::dismiss);
        for member in self.members.iter_mut().filter(|member| of_role(member)) {
            member.end(&self.ledger).await?;
            self.ended_counts += member.counts;
        }
        self.members.retain(|member| !of_role(member));
        Ok(())
    }
}

/// Waits a moment before the next poll.
pub(crate) async fn pause() {
    sleep(Duration::from_millis(5)).await;
}
