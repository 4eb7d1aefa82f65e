//! The nodes: processes with reactions.

use std::sync::Arc;
use std::time::Duration;

use leftfold::react::{Reactor, ReactorHandle};
use leftfold::{Log as _, Partition, Result};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::handlers::HandlerContext;
use super::things::REACTIONS;
use super::world::{World, failure};
use crate::clock::Clock;
use crate::faults::Fault;
use crate::store::SimStore;

/// A process with reactions.
pub(super) struct Node {
    pub(super) store: SimStore,
    pub(super) reacting: ReactorHandle<SimStore>,
}

impl World {
    /// Starts a node with these reactions. Returns `None` if it could not be started.
    async fn node(&self, name: &str, code: u32, reactions: &[&str], plans: bool, runs: bool) -> Option<Node> {
        let store = self.store.worker(name);
        store.shared().ledger.node(name, code, store.fuse_of());
        store
            .shared()
            .trace
            .note(|| format!("{name} starts, code {code}, {reactions:?}, plans {plans}, runs {runs}"));
        let dice = Arc::new(self.dice.split());
        let context = HandlerContext { store: store.clone(), dice, setup: Arc::clone(&self.setup), code };
        let clock = Clock::new(self.dice.split(), store.clone());
        let mut reactor = Reactor::on(store.clone()).env(clock).worker(name).plans(plans);
        reactor = reactor.sweep_every(Duration::from_secs(2)).concurrency(6);
        for name in reactions {
            reactor = reactor.reaction(context.reaction(name));
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
    pub(super) async fn run_nodes(&self, faults_ended: watch::Receiver<bool>) -> Result<Vec<Node>> {
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
            if *faults_ended.borrow() {
                for node in &nodes {
                    ledger.stands_still(&node.store.name, false);
                    node.store.gate().open();
                    node.store.fuse().put_out();
                }
                let code = if self.deployment.is_some() { 2 } else { 1 };
                let last = self.node("last", code, &REACTIONS, true, true).await;
                nodes.push(last.ok_or_else(|| failure("the last node could not start"))?);
                return Ok(nodes);
            }
            while (nodes.len() as u64) < count && !*faults_ended.borrow() {
                nodes.extend(self.any_node(number, began).await);
                number += 1;
                sleep(Duration::from_millis(20)).await;
            }
            sleep(self.dice.time(Duration::from_secs(3))).await;
            let Some(at) = usize::try_from(self.dice.below(nodes.len() as u64)).ok() else { continue };
            let Some(node) = nodes.get(at).filter(|_| !*faults_ended.borrow()) else { continue };
            let name = &node.store.name;
            if shared.faults.strikes(Fault::Crash) {
                let polls = self.dice.below(40);
                shared.trace.note(|| format!("{name} dies after {polls} steps"));
                node.store.fuse().light(polls);
            } else if shared.faults.strikes(Fault::Pause) {
                shared.trace.note(|| format!("{name} is paused"));
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
}
