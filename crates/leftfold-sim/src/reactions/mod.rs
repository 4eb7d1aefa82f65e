//! A world of reactions, on a store with faults.
//!
//! Documents change, nodes plan, run, die and pause, old code runs beside new, and an operator
//! interferes. Then the faults end, and the last state of every document must be handled.

mod actors;
mod finally;
mod handlers;
pub(crate) mod ledger;

use std::sync::Arc;
use std::time::Duration;

use leftfold::react::{Query, Reactor, ReactorHandle, State};
use leftfold::{Error, Kind, Log as _, Partition, Result};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use self::actors::{append, operate, resume, write, write_on};
pub(crate) use self::handlers::Thing;
use self::handlers::{Hands, REACTIONS, Setup};
use crate::clock::Clock;
use crate::dice::Dice;
use crate::faults::{Fault, Faults};
use crate::store::{LATE, SimStore};

const HURT: Duration = Duration::from_secs(20);
const BOUND: Duration = Duration::from_mins(5);

/// A world of reactions.
pub(crate) struct World {
    dice: Dice,
    pub(crate) store: SimStore,
    setup: Arc<Setup>,
    /// The time at which newer code is deployed, if it is.
    deployment: Option<Duration>,
    operator: SimStore,
}

/// A process with reactions.
struct Node {
    store: SimStore,
    reacting: ReactorHandle<SimStore>,
}

impl World {
    pub(crate) fn drawn(seed: u64, trace: bool) -> Self {
        let dice = Dice::new(seed ^ 0x7ea5_e115);
        let faults = if dice.happens(50) { Faults::none() } else { Faults::drawn(&dice) };
        let setup = Setup::drawn(&dice, &faults);
        let store = SimStore::new(1, true, faults, trace);
        store.shared().ledger.set_up(setup.attempts, setup.visibility);
        store.shared().trace.note(|| format!("reactions: {setup:?}"));
        let deployment = dice.happens(500).then(|| dice.time(HURT));
        let operator = store.worker("operator");
        Self { dice, store, setup: Arc::new(setup), deployment, operator }
    }

    pub(crate) async fn live(&self) {
        if let Err(error) = Box::pin(self.hurt_and_heal()).await {
            self.store.violated(format!("I10: {error}"));
        }
    }

    async fn hurt_and_heal(&self) -> Result<()> {
        let (healthy, healed) = watch::channel(false);
        let mut others = JoinSet::new();
        others.spawn(write_on(self.store.clone(), self.dice.split(), healed.clone()));
        let healing = async {
            sleep(HURT).await;
            self.store.shared().faults.heal();
            self.store.shared().trace.note(|| "all heals".to_owned());
            healthy.send_replace(true);
        };
        let operating = async {
            let operator = self.operator().await?;
            operate(operator.clone(), self.operator.clone(), self.dice.split(), healed.clone()).await;
            Ok::<_, Error>(operator)
        };
        let (nodes, operator, ()) = tokio::join!(self.keep_nodes(healed.clone()), operating, healing);
        while let Some(ended) = others.join_next().await {
            ended.map_err(|_| late("a writer panicked"))??;
        }
        // Wait for delayed writes.
        sleep(LATE).await;
        let (operator, nodes) = (operator?, nodes?);
        let come_right = self.come_right(&operator, &nodes);
        let Ok(right) = timeout(BOUND, come_right).await else {
            self.check().await?;
            return Err(late("not everything was handled in time"));
        };
        right?;
        for node in &nodes {
            self.store.shared().ledger.node_ends(&node.store.name);
            let stopped = node.reacting.stop(Duration::from_secs(1));
            timeout(BOUND, stopped).await.map_err(|_| late("a node did not stop"))?;
        }
        operator.stop(Duration::ZERO).await;
        self.check().await
    }

    async fn operator(&self) -> Result<ReactorHandle<SimStore>> {
        loop {
            let clock = Clock::new(self.dice.split(), self.operator.clone());
            let reactor = Reactor::on(self.operator.clone()).env(clock).worker("operator").plans(false);
            match reactor.start().await {
                Ok(reacting) => return Ok(reacting),
                Err(error) if error.is_transient() => sleep(Duration::from_millis(100)).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts a node with these reactions. Returns `None` if it could not be started.
    async fn node(&self, name: &str, code: u32, reactions: &[&str], plans: bool, runs: bool) -> Option<Node> {
        let store = self.store.worker(name);
        store.shared().ledger.node(name, code, store.fuse_of());
        store
            .shared()
            .trace
            .note(|| format!("{name} starts, code {code}, {reactions:?}, plans {plans}, runs {runs}"));
        let dice = Arc::new(self.dice.split());
        let hands = Hands { store: store.clone(), dice, setup: Arc::clone(&self.setup), code };
        let clock = Clock::new(self.dice.split(), store.clone());
        let mut reactor = Reactor::on(store.clone()).env(clock).worker(name).plans(plans);
        reactor = reactor.sweep_every(Duration::from_secs(2)).concurrency(6);
        for name in reactions {
            reactor = reactor.reaction(hands.reaction(name));
        }
        if !runs {
            reactor = reactor.runs(Vec::<String>::new());
        }
        match reactor.start().await {
            Ok(reacting) => {
                if plans {
                    let heads = store.inner().heads().await.unwrap_or_default();
                    store.shared().ledger.follows(reactions, heads.position(Partition(0)).0);
                }
                Some(Node { store, reacting })
            }
            Err(error) => {
                self.store.shared().ledger.node_ends(name);
                self.store.shared().trace.note(|| format!("{name} could not start: {error}"));
                None
            }
        }
    }

    /// Starts a random node.
    async fn any_node(&self, number: u64, began: Instant) -> Option<Node> {
        let dice = &self.dice;
        let is_deployed = self.deployment.is_some_and(|at| began.elapsed() >= at);
        let code = if is_deployed && dice.happens(700) { 2 } else { 1 };
        let mut reactions = REACTIONS.to_vec();
        if dice.happens(300) {
            reactions.retain(|_| dice.happens(600));
        }
        let (plans, runs) = match dice.below(4) {
            0 => (true, false),
            1 => (false, true),
            _ => (true, true),
        };
        self.node(&format!("node-{number}"), code, &reactions, plans, runs).await
    }

    /// Starts, stops, pauses and replaces nodes until the faults end. Then one node remains that
    /// does everything, with the latest code.
    async fn keep_nodes(&self, healed: watch::Receiver<bool>) -> Result<Vec<Node>> {
        let (shared, ledger) = (self.store.shared(), &self.store.shared().ledger);
        let (count, began) = (1 + self.dice.below(3), Instant::now());
        let mut nodes: Vec<Node> = Vec::new();
        let mut number = 0;
        loop {
            nodes.retain(|node| {
                let is_dead = node.store.fuse().is_blown();
                if is_dead {
                    ledger.node_ends(&node.store.name);
                }
                !is_dead
            });
            if *healed.borrow() {
                for node in &nodes {
                    ledger.stands_still(&node.store.name, false);
                    node.store.gate().open();
                    node.store.fuse().put_out();
                }
                let code = if self.deployment.is_some() { 2 } else { 1 };
                let last = self.node("last", code, &REACTIONS, true, true).await;
                nodes.push(last.ok_or_else(|| late("the last node could not start"))?);
                return Ok(nodes);
            }
            while (nodes.len() as u64) < count && !*healed.borrow() {
                nodes.extend(self.any_node(number, began).await);
                number += 1;
                sleep(Duration::from_millis(20)).await;
            }
            sleep(self.dice.time(Duration::from_secs(3))).await;
            let Some(at) = usize::try_from(self.dice.below(nodes.len() as u64)).ok() else { continue };
            let Some(node) = nodes.get(at).filter(|_| !*healed.borrow()) else { continue };
            let name = &node.store.name;
            if shared.faults.strikes(Fault::Crash) {
                let polls = self.dice.below(40);
                shared.trace.note(|| format!("{name} dies after {polls} steps"));
                node.store.fuse().light(polls);
            } else if shared.faults.strikes(Fault::Pause) {
                shared.trace.note(|| format!("{name} stands still"));
                ledger.stands_still(name, true);
                node.store.gate().close();
            } else if self.dice.happens(100) {
                // Replace a node, as deployments do.
                shared.trace.note(|| format!("{name} is stopped"));
                node.store.gate().open();
                ledger.node_ends(name);
                let node = nodes.swap_remove(at);
                let stopped = node.reacting.stop(self.dice.time(Duration::from_secs(2)));
                let _ = timeout(Duration::from_secs(5), stopped).await;
            } else {
                ledger.stands_still(name, false);
                node.store.gate().open();
            }
        }
    }

    /// Checks that without faults everything is handled, and that later changes are handled at
    /// once.
    async fn come_right(&self, operator: &ReactorHandle<SimStore>, nodes: &[Node]) -> Result<()> {
        let Some(last) = nodes.last() else { return Ok(()) };
        for reaction in REACTIONS {
            resume(operator, &self.store, reaction).await;
        }
        last.reacting.idle_within(Duration::from_secs(20)).await?;
        let failed = Query { states: vec![State::Failed], ..Query::default() };
        operator.retry(failed, None).await?;
        last.reacting.idle_within(Duration::from_secs(20)).await?;
        self.check().await?;
        // The document enters the filter, changes, leaves it, returns, is deleted and is created
        // again.
        let thing = |on, value| Some(Thing { on, value, noise: 9 });
        let ids = ["d0", "d1", "d2", "new"];
        let id = self.dice.pick(&ids).copied().unwrap_or("new");
        for (at, step) in
            [thing(true, 10), thing(true, 11), thing(false, 11), thing(true, 11), None, thing(true, 11)]
                .iter()
                .enumerate()
        {
            let before = self.store.shared().ledger.handled(id);
            write(&self.store, id, step.as_ref())?;
            append(&self.store, "s0", "sold", 1_000 + at as u64).await?;
            last.reacting.idle_within(Duration::from_secs(10)).await?;
            let after = self.store.shared().ledger.handled(id);
            let wanted = u64::from(step.as_ref().is_some_and(|step| step.on)) * 3;
            if after - before != wanted {
                let step = step.as_ref().map(|step| (step.on, step.value));
                let handled = after - before;
                self.store
                    .violated(format!("I10: when {id} was made {step:?}, it was handled {handled} times"));
            }
        }
        self.check().await
    }
}

fn late(what: &str) -> Error {
    Error::new(Kind::Store, what)
}
