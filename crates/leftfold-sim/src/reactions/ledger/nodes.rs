//! The nodes: their faults, pauses, deaths and heartbeats.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::state::{Ledger, State};
use crate::fuse::Fuse;

/// The state of a node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) code: u32,
    pub(super) fuse: Arc<Fuse>,
    pub(super) stands_still: bool,
    /// The faults it met, with their time and weight. A node with few faults keeps its claims.
    pub(super) troubles: Vec<(Instant, u32)>,
    pub(super) is_over: bool,
}

impl Node {
    pub(super) fn is_gone(&self) -> bool {
        self.is_over || self.stands_still || self.fuse.is_blown()
    }

    /// Returns whether the node met so many faults within this time that it could lose its claims.
    pub(super) fn was_troubled(&self, within: Duration) -> bool {
        self.is_gone() || self.troubles_since(Instant::now().checked_sub(within)) >= 2
    }

    pub(super) fn troubles_since(&self, from: Option<Instant>) -> u32 {
        let recent = self.troubles.iter().filter(|(at, _)| from.is_none_or(|from| *at >= from));
        recent.map(|(_, weight)| *weight).sum()
    }
}

/// Returns the node's name from a worker's name.
pub(super) fn name_of(worker: &str) -> &str {
    worker.rsplit_once('-').map_or(worker, |(name, _)| name)
}

impl Ledger {
    /// Records the start of a node.
    pub(crate) fn node(&self, name: &str, code: u32, fuse: Arc<Fuse>) {
        let node = Node { code, fuse, stands_still: false, troubles: Vec::new(), is_over: false };
        self.state().nodes.insert(name.to_owned(), node);
    }

    /// Records the end or the death of a node.
    pub(crate) fn node_ends(&self, name: &str) {
        if let Some(node) = self.state().nodes.get_mut(name) {
            node.is_over = true;
        }
    }

    /// Records that a node is paused or continues.
    pub(crate) fn stands_still(&self, name: &str, still: bool) {
        if let Some(node) = self.state().nodes.get_mut(name) {
            node.stands_still = still;
        }
        self.gone(name, Duration::ZERO);
    }

    /// Records a fault of a node.
    pub(crate) fn trouble(&self, name: &str) {
        self.state().trouble(name, Duration::ZERO, 1);
    }

    /// Records that a node is silent for at most this time.
    pub(crate) fn gone(&self, name: &str, most: Duration) {
        self.state().trouble(name, most, 10);
    }

    /// Records a heartbeat of a worker.
    pub(crate) fn beat(&self, worker: &str, length: Duration) {
        let (now, mut state) = (Instant::now(), self.state());
        let alive = state.alive.entry(name_of(worker).to_owned()).or_insert((now, now));
        *alive = (if alive.1 < now { now } else { alive.0 }, now + length);
    }
}

impl State {
    pub(super) fn trouble(&mut self, name: &str, most: Duration, weight: u32) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.troubles.push((Instant::now() + most, weight));
        }
    }
}
