//! Attacks on the planners and runners of reactions.

use std::collections::BTreeMap;
use std::time::Duration;

use leftfold::DocumentId;
use leftfold::react::{Query, State, Task, TaskKey};
use tokio::time::{Instant, sleep};

use super::{BREATHER, Hurt, MOST_MISSES, REPLACED, missed};
use crate::crew::{PATIENCE, pause};
use crate::failure::Failure;
use crate::member::Member;
use crate::messages::Blow;
use crate::plan::Deed;
use crate::points;
use crate::react::{GARBLED, HOLD, ITEM, ItemKind, LARGE, POISON, is_unreadable};
use crate::role::Role;
use crate::signals;
use crate::store::{Place, Rigged, patiently};

/// Places where a handler is about to have an effect and nothing is locked.
const BEFORE_TRANSACTION: Place =
    Place { name: "handler: before its transaction", role: Role::Runner, passes: &[points::BEGIN] };
const BEFORE_EFFECT: Place =
    Place { name: "handler: before its effect", role: Role::Runner, passes: &[points::EFFECT] };

/// The lease of the planner for items.
pub(super) const FEED_OF_ITEMS: &str = "feed of plain items";
/// A stopped process that is not replaced in this time holds a lock on the store, if the store has
/// locks: another of its threads was writing.
const PLANNER_LOCKED: Duration = Duration::from_secs(7);
const RUNNER_LOCKED: Duration = Duration::from_secs(3);
/// The number of healthy documents written together with the deadly one.
const NEIGHBOURS: u64 = 60;
/// The rig kills another runner whenever the deadly document has killed this many processes.
const KILL_BESIDE_EVERY: usize = 3;

impl<S: Rigged> Hurt<'_, S> {
    pub(super) async fn do_to_reactor(&mut self, deed: Deed) -> Result<(), Failure> {
        match deed {
            Deed::KillAt(place) => {
                self.kill_there(place).await?;
                self.tally.reactors_killed += 1;
            }
            Deed::Kill => {
                sleep(self.dice.time(BREATHER)).await;
                let role = self.dice.pick(&[Role::Planner, Role::Runner]).copied().unwrap_or(Role::Runner);
                let at = self.victim(role).await?;
                self.crew.tend().await?;
                self.crew.replace(at, false).await?;
                self.tally.reactors_killed += 1;
                self.tally.reactors_killed_at_any_moment += 1;
            }
            Deed::StopPlanner => self.stop_planner().await?,
            Deed::StopRunner => self.stop_runner().await?,
            Deed::Poison => self.poison().await?,
            Deed::Enlarge => self.enlarge().await?,
            Deed::Garble => self.garble().await?,
            Deed::Mend => {
                let item = self.garden.new_item();
                self.garden.put(self.store, GARBLED, Some(item)).await?;
            }
            Deed::TakeOver => {
                self.take_over_planner().await?;
                self.take_over_runner().await?;
            }
        }
        Ok(())
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
                return Err(Failure::Violated(vec![format!("I10: nobody plans for {PATIENCE:?}")]));
            }
            pause().await;
        }
    }

    /// Stops a planner that has read changes until others have all its leases. It then goes on with
    /// the old changes.
    async fn stop_planner(&mut self) -> Result<(), Failure> {
        for _ in 0..MOST_MISSES {
            let at = self.leader(None).await?;
            let place = self.crew.store().before_plan();
            if !self.crew.aim(at, place, 1 + self.dice.below(4), Blow::Wait).await? {
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
                        format!("I10: nobody plans in the place of {name}, stopped for {REPLACED:?}");
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
    async fn stop_runner(&mut self) -> Result<(), Failure> {
        let place = if self.dice.happens(700) { &BEFORE_TRANSACTION } else { &BEFORE_EFFECT };
        for _ in 0..MOST_MISSES {
            let at = self.victim(Role::Runner).await?;
            if !self.crew.aim(at, place, 1 + self.dice.below(4), Blow::Wait).await? {
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
                    let message = format!("I10: nobody runs the tasks of {name}, stopped for {REPLACED:?}");
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

    /// Writes a document that kills the process that handles it, among healthy ones. Its task must
    /// be given up, and not too late. Meanwhile the rig kills other runners as well.
    async fn poison(&mut self) -> Result<(), Failure> {
        let neighbour = |number| (format!("neighbour-{number}"), self.garden.new_of(ItemKind::Neighbour));
        let mut items: Vec<_> = (0..NEIGHBOURS).map(neighbour).collect();
        items.push((POISON.to_owned(), self.garden.new_of(ItemKind::Deadly)));
        self.garden.insert_all(self.store, items).await?;
        let begun = Instant::now();
        loop {
            self.crew.tend().await?;
            let fallen = |(at, member): (usize, &Member)| member.fell.map(|beside| (at, beside));
            while let Some((at, beside)) = self.crew.members.iter().enumerate().find_map(fallen) {
                self.crew.replace(at, true).await?;
                self.tally.falls.push(beside);
                if self.tally.falls.len() % KILL_BESIDE_EVERY == 1 {
                    self.kill_beside().await?;
                }
            }
            if self.task(POISON, POISON).await?.is_some_and(|task| task.state == State::Failed) {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err(Failure::Violated(vec![format!(
                    "I8: the poison is not given up in {PATIENCE:?}"
                )]));
            }
            pause().await;
        }
    }

    /// Kills a runner, unless it already dies by itself.
    async fn kill_beside(&mut self) -> Result<(), Failure> {
        let at = self.victim(Role::Runner).await?;
        self.crew.tend().await?;
        if self.crew.members[at].fell.is_none() {
            self.crew.replace(at, false).await?;
            self.tally.reactors_killed += 1;
            self.tally.reactors_killed_at_any_moment += 1;
        }
        Ok(())
    }

    /// Writes a document with a large watched value. Later documents must still be handled.
    async fn enlarge(&mut self) -> Result<(), Failure> {
        let item = self.garden.new_large(S::LARGE_BYTES);
        self.garden.put(self.store, LARGE, Some(item)).await?;
        self.tally.enlarged += 1;
        self.others_go_on().await
    }

    /// Writes a document that can't be read. Its task fails, and later documents must still be
    /// handled.
    async fn garble(&mut self) -> Result<(), Failure> {
        patiently::<S, _, _>(|| self.store.put_unreadable(GARBLED)).await?;
        self.wait_for(GARBLED, ITEM, Instant::now(), is_unreadable).await?;
        self.tally.garbled += 1;
        self.others_go_on().await
    }

    /// Writes a document and waits until it is handled.
    async fn others_go_on(&mut self) -> Result<(), Failure> {
        let item = self.garden.new_item();
        let id = format!("after-{}", item.tag);
        self.garden.put(self.store, &id, Some(item)).await?;
        self.wait_for(&id, ITEM, Instant::now(), |task| task.state == State::Done).await?;
        Ok(())
    }

    /// Kills the planner for items and measures the time until a new item is planned.
    async fn take_over_planner(&mut self) -> Result<(), Failure> {
        let at = self.leader(Some(FEED_OF_ITEMS)).await?;
        let killed = Instant::now();
        self.crew.replace_as(at, false, None).await?;
        self.tally.reactors_killed += 1;
        let item = self.garden.new_item();
        self.garden.put(self.store, "next", Some(item)).await?;
        self.wait_for("next", ITEM, killed, |_| true).await?;
        self.tally.planned_after = self.tally.planned_after.max(killed.elapsed().as_secs_f64());
        Ok(())
    }

    /// Kills the runner of a task that would never end, and measures the time until another one has
    /// run it.
    async fn take_over_runner(&mut self) -> Result<(), Failure> {
        let item = self.garden.new_of(ItemKind::Held);
        self.garden.put(self.store, HOLD, Some(item)).await?;
        let held = self.wait_for(HOLD, HOLD, Instant::now(), |task| task.state == State::Running).await?;
        let owner = held.owner.unwrap_or_default();
        let at = self
            .crew
            .find_claimant(&owner)
            .ok_or_else(|| Failure::rig("looking for who runs a task", &owner))?;
        let killed = Instant::now();
        self.crew.replace_as(at, false, None).await?;
        self.tally.reactors_killed += 1;
        self.wait_for(HOLD, HOLD, killed, |task| task.state == State::Done).await?;
        self.tally.run_after = self.tally.run_after.max(killed.elapsed().as_secs_f64());
        Ok(())
    }

    /// Waits until a task exists and satisfies `is_so`.
    async fn wait_for(
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
                let message = format!("I10: {reaction} for {document} does not get on for {PATIENCE:?}");
                return Err(Failure::Violated(vec![message]));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn task(&self, reaction: &str, document: &str) -> Result<Option<Task>, Failure> {
        let key = TaskKey { reaction: reaction.to_owned(), document: DocumentId::new(document)? };
        Ok(patiently::<S, _, _>(|| self.store.load_tasks(vec![key.clone()])).await?.pop())
    }
}
