//! The running handlers.

use leftfold::react::{State as Is, Suspicion, Task, TaskKey};

use super::nodes::Node;
use super::sometimes::Sometimes;
use super::state::Ledger;

impl Ledger {
    /// Records the start of a handler. Returns the violations.
    pub(crate) fn began(&self, node: &str, task: &Task) -> Vec<String> {
        let mut state = self.state();
        let (claim, suspicion) = ((task.key.clone(), task.epoch), task.suspicion);
        let running = state.handlers.entry(node.to_owned()).or_default();
        let beside = running.clone();
        running.insert(claim.clone(), suspicion);
        if beside.is_empty() {
            let is_alone = suspicion == Suspicion::Alone;
            state.sometimes[Sometimes::Alone as usize] += u64::from(is_alone);
            return Vec::new();
        }
        state.company.extend(beside.keys().cloned());
        state.company.insert(claim);
        let most = match suspicion {
            Suspicion::None => usize::MAX,
            Suspicion::Many => 64,
            Suspicion::Few => 8,
            Suspicion::Alone => 1,
        };
        let is_mixed = beside.values().any(|other| *other != suspicion);
        let is_wrong = is_mixed || beside.len() >= most;
        let label = || {
            let TaskKey { reaction, document } = &task.key;
            format!(
                "I14: {reaction}/{document} runs under suspicion {suspicion:?} beside {:?}",
                beside.values()
            )
        };
        is_wrong.then(label).into_iter().collect()
    }

    /// Records the end of a handler, with any result.
    pub(crate) fn is_through(&self, node: &str, task: &Task) {
        let mut state = self.state();
        if let Some(handlers) = state.handlers.get_mut(node) {
            handlers.remove(&(task.key.clone(), task.epoch));
        }
    }

    /// Records that a handler succeeded.
    pub(crate) fn succeeded(&self, task: &Task) {
        let mut state = self.state();
        state.tasks.entry(task.key.clone()).or_default().succeeded.insert(task.epoch);
    }

    /// Records that a handler was canceled before it finished. Returns the violations.
    pub(crate) fn cancelled(&self, node: &str, task: &Task) -> Vec<String> {
        self.happened(Sometimes::Cancelled);
        let state = self.state();
        let is_over = state.nodes.get(node).is_none_or(Node::is_gone);
        let last = state.tasks.get(&task.key).and_then(|known| known.last.as_ref());
        let stands = last
            .is_some_and(|last| last.epoch == task.epoch && matches!(last.state, Is::Running | Is::Changed));
        if stands && !is_over {
            let TaskKey { reaction, document } = &task.key;
            let epoch = task.epoch;
            return vec![format!(
                "I12: {node}: claim {epoch} of {reaction}/{document} is valid, and its run was canceled"
            )];
        }
        Vec::new()
    }
}
