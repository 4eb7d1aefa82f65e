//! The processes: started, given orders, killed, and started again.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leftfold_sim::dice::Dice;
use tokio::time::{Instant, sleep};

use crate::failure::Failure;
use crate::ledger::Ledger;
use crate::member::Member;
use crate::role::Role;
use crate::signals;
use crate::store::{Kind, Place};
use crate::words::{Blow, Did, Order};

/// How long a process has for what it is ordered, before it is told to forget it.
const AIM: Duration = Duration::from_secs(2);
/// What takes longer than this will never happen.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// All processes. Dropped, it kills them.
pub(crate) struct Crew {
    pub(crate) members: Vec<Member>,
    /// What reactors did that are gone.
    did: Did,
    store: Kind,
    place: String,
    beside: PathBuf,
    seed: u64,
    dice: Dice,
    program: PathBuf,
    ledger: Arc<Mutex<Ledger>>,
}

/// Which code processes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// That which can't fold or decode everything.
    Old,
    Mended,
    /// The one or the other, as while new code is being brought out.
    Any,
}

impl Crew {
    pub(crate) fn new(
        store: Kind,
        place: String,
        beside: PathBuf,
        seed: u64,
        ledger: Arc<Mutex<Ledger>>,
    ) -> Result<Self, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::rig("starting processes: this program can't be found", error))?;
        let (members, did, dice) = (Vec::new(), Did::default(), Dice::new(seed));
        Ok(Self { members, did, store, place, beside, seed, dice, program, ledger })
    }

    /// Starts so many processes, and waits until they are ready.
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
            // What a producer writes is named after it, and the same whenever it is written.
            Role::Producer => (format!("producer-{seat}"), self.seed.wrapping_add(seat << 32)),
            // What feeders bring is the same, each in its own order.
            Role::Feeder => (format!("feeder-{seat}"), self.seed),
            _ => (name.unwrap_or_else(|| format!("{}-{seat}-{turn}", role.name())), self.dice.next()),
        };
        let mended = match code {
            Code::Old => false,
            Code::Mended => true,
            Code::Any => self.dice.happens(400),
        };
        let mut arguments: Vec<OsString> = vec!["--seed".into(), seed.to_string().into()];
        arguments.extend(["--store".into(), self.store.name().into()]);
        arguments.extend(["--place".into(), self.place.clone().into()]);
        arguments.extend(["--beside".into(), self.beside.clone().into()]);
        arguments.extend(mended.then(|| "--mended".into()));
        Member::start(&self.program, arguments, (role, seat, turn), name, next_append).await
    }

    /// What reactors did that are gone.
    pub(crate) fn did(&self) -> Did {
        self.did
    }

    /// What the events of feeders follow from.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// The store they work on.
    pub(crate) fn store(&self) -> Kind {
        self.store
    }

    /// Which member has this name.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.members.iter().position(|member| member.name == name)
    }

    /// Returns the member that has a claim. Its owner is the member's name with a random suffix.
    pub(crate) fn find_claimant(&self, owner: &str) -> Option<usize> {
        owner.rsplit_once('-').and_then(|(name, _)| self.find(name))
    }

    /// Any member that does what a role does.
    pub(crate) fn any(&self, role: Role) -> Option<usize> {
        let fits: Vec<_> = (0..self.members.len()).filter(|at| self.members[*at].role.does(role)).collect();
        self.dice.pick(&fits).copied()
    }

    /// Hears what all have to say. Nobody ends without having been killed.
    pub(crate) async fn tend(&mut self) -> Result<(), Failure> {
        for member in &mut self.members {
            member.tend(&self.ledger).await?;
        }
        let wrong = self.ledger.lock().unwrap_or_else(PoisonError::into_inner).wrong.clone();
        if wrong.is_empty() { Ok(()) } else { Err(Failure::Violated(wrong)) }
    }

    /// Has a blow befall a member at a place. Answers whether it did, in time.
    pub(crate) async fn aim(
        &mut self,
        at: usize,
        place: &Place,
        times: u64,
        blow: Blow,
    ) -> Result<bool, Failure> {
        let passes = place.passes.iter().map(ToString::to_string).collect();
        let times = u32::try_from(times).unwrap_or(1);
        let order = Order::At { place: place.name.to_owned(), passes, times, blow };
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
                return Err(Failure::rig(format!("giving {} an order", member.name), "it does not answer"));
            }
            pause().await;
        }
    }

    /// Lets a member that was stopped go on, also from the place where it waits.
    pub(crate) async fn resume(&mut self, at: usize) -> Result<(), Failure> {
        let member = &mut self.members[at];
        let failed = |error| Failure::rig(format!("resuming {}", member.name), error);
        signals::resume(member.pid()?).map_err(failed)?;
        if std::mem::take(&mut member.reached) {
            member.order(&Order::GoOn).await?;
        }
        Ok(())
    }

    /// Kills a member, or sees that it has killed itself, and puts another in its seat.
    pub(crate) async fn replace(&mut self, at: usize, by_itself: bool) -> Result<(), Failure> {
        // Under its old name it takes up its work at once, under another it has to wait until its own lease ends.
        let name = self.dice.happens(400).then(|| self.members[at].name.clone());
        self.replace_as(at, by_itself, name).await
    }

    /// The same, under this name or a new one.
    pub(crate) async fn replace_as(
        &mut self,
        at: usize,
        by_itself: bool,
        name: Option<String>,
    ) -> Result<(), Failure> {
        let member = &mut self.members[at];
        member.kill(by_itself, &self.ledger).await?;
        self.did += member.did;
        let code = if member.role == Role::Operator { Code::Mended } else { Code::Any };
        let (seat, next_append) = ((member.role, member.seat, member.turn + 1), member.next_append);
        self.members[at] = self.one(seat, name, next_append, code).await?;
        Ok(())
    }

    /// Asks all workers to end, and starts others with the old code.
    pub(crate) async fn put_back(&mut self) -> Result<(), Failure> {
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

    /// Asks all of a role to end, and waits until they have.
    pub(crate) async fn end(&mut self, role: Role) -> Result<(), Failure> {
        let of_role = |member: &Member| member.role == role;
        self.members.iter_mut().filter(|member| of_role(member)).for_each(Member::dismiss);
        for member in self.members.iter_mut().filter(|member| of_role(member)) {
            member.end(&self.ledger).await?;
            self.did += member.did;
        }
        self.members.retain(|member| !of_role(member));
        Ok(())
    }
}

/// A moment between two looks at something that others change.
pub(crate) async fn pause() {
    sleep(Duration::from_millis(5)).await;
}
