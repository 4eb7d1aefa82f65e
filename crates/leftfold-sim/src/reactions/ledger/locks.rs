//! The locks of handlers.

use std::time::Duration;

use super::sometimes::Sometimes;
use super::state::Ledger;

/// The longest time from the last renewal of a lock until its loss, with some margin.
const LOCKED: Duration = Duration::from_secs(8);

impl Ledger {
    /// Records that a handler has the lock with this number. Returns the violations.
    pub(crate) fn locked(&self, number: u64, highest_before: u64, node: &str, owner: &str) -> Vec<String> {
        let mut state = self.state();
        let mut wrong = Vec::new();
        for (other, holder) in &state.holding {
            if !state.nodes.get(holder).is_none_or(|holder| holder.was_troubled(LOCKED)) {
                wrong.push(format!(
                    "I13: {owner} has the lock, and {holder} met no faults and has it as number {other}"
                ));
            }
        }
        state.holding.insert(number, node.to_owned());
        if number <= highest_before {
            wrong.push(format!(
                "I13: {owner} has the lock as number {number}, and an earlier holder had {highest_before}"
            ));
        }
        match state.locked.insert(number, owner.to_owned()) {
            Some(other) if other != owner => {
                wrong.push(format!("I13: {owner} and {other} both have the lock as number {number}"));
            }
            _ => {}
        }
        wrong
    }

    /// Records that a handler no longer has the lock.
    pub(crate) fn unlocked(&self, number: u64) {
        self.state().holding.remove(&number);
    }

    /// Returns the highest lock number so far.
    pub(crate) fn highest_lock(&self) -> u64 {
        self.state().locked.keys().next_back().copied().unwrap_or(0)
    }

    /// Records that a fault has ended a lease of a node.
    pub(crate) fn robbed(&self, node: &str, lease: &str) {
        let mut state = self.state();
        state.trouble(node, Duration::ZERO, 10);
        if is_lock(lease) {
            state.holding.retain(|_, holder| holder != node);
        }
    }

    pub(crate) fn lease_taken_over(&self, name: &str) {
        self.happened(if is_lock(name) { Sometimes::Locks } else { Sometimes::Collections });
    }
}

fn is_lock(lease: &str) -> bool {
    lease.starts_with("lock")
}
