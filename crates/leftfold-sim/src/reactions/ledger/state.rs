//! The ledger's knowledge of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leftfold::DocumentId;
use leftfold::react::{Suspicion, TaskKey};
use serde_json::Value;
use tokio::time::Instant;

use super::effects::{Effect, Sent};
use super::holdups::Holdup;
use super::nodes::Node;
use super::sometimes::{SOMETIMES, Sometimes};
use super::tasks::Known;

/// Checks the reactions of a run.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// The maximum number of attempts. `visibility` is the duration of a claim.
    pub(in crate::reactions) attempts: u32,
    pub(in crate::reactions) visibility: Duration,
    /// The number of writes of all documents.
    pub(super) writes: u64,
    /// The states of each document, each with the number of its write.
    pub(in crate::reactions) documents: BTreeMap<DocumentId, Vec<(u64, Option<Value>)>>,
    pub(in crate::reactions) tasks: BTreeMap<TaskKey, Known>,
    pub(super) nodes: BTreeMap<String, Node>,
    pub(in crate::reactions) sent: BTreeMap<String, Vec<Sent>>,
    pub(in crate::reactions) effects: BTreeMap<String, Vec<Effect>>,
    /// The last times at which nodes were offered tasks.
    pub(super) offered: BTreeMap<(String, TaskKey), Instant>,
    pub(super) holdups: BTreeMap<String, Holdup>,
    /// The length of the log when each reaction began to follow it.
    pub(in crate::reactions) followed: BTreeMap<String, u64>,
    pub(super) locked: BTreeMap<u64, String>,
    /// The lock numbers held now, and their nodes.
    pub(super) holding: BTreeMap<u64, String>,
    /// The running handlers, by node.
    pub(super) handlers: BTreeMap<String, BTreeMap<Claim, Suspicion>>,
    /// Claims whose handlers ran beside others.
    pub(super) company: BTreeSet<Claim>,
    /// For each node, the start and the end of its current unbroken series of heartbeats.
    pub(super) alive: BTreeMap<String, (Instant, Instant)>,
    pub(super) sometimes: [u64; SOMETIMES.len()],
}

/// A task and the epoch of a claim.
pub(super) type Claim = (TaskKey, u64);

impl Ledger {
    pub(in crate::reactions) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn happened(&self, event: Sometimes) {
        self.state().sometimes[event as usize] += 1;
    }

    pub(crate) fn sometimes(&self) -> [u64; SOMETIMES.len()] {
        self.state().sometimes
    }

    /// Records that these reactions begin to follow the log, which has this length.
    pub(crate) fn follows(&self, reactions: &[&str], events: u64) {
        let mut state = self.state();
        for reaction in reactions {
            state.followed.entry((*reaction).to_owned()).or_insert(events);
        }
    }
}
