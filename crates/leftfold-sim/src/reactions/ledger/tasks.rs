//! The changes of tasks.

use std::collections::{BTreeMap, BTreeSet};

use leftfold::react::{State as Is, Task, TaskKey};
use tokio::time::Instant;

use super::sometimes::Sometimes;
use super::state::{Ledger, State};

/// The way in which a task was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrote {
    /// On its own.
    Alone,
    /// In a transaction with an effect.
    InTransaction,
}

/// The history of a task, by generation.
#[derive(Clone, Debug, Default)]
pub(in crate::reactions) struct Known {
    pub(in crate::reactions) last: Option<Task>,
    /// The current claim, and its generation.
    pub(super) running: Option<(u64, u64)>,
    /// The time of the claim or of its last renewal.
    pub(super) renewed: Option<Instant>,
    pub(super) claims: BTreeMap<u64, u32>,
    /// Claims that do not count as attempts.
    pub(super) forgiven: BTreeMap<u64, u32>,
    pub(in crate::reactions) done: BTreeSet<u64>,
    pub(super) retried: BTreeMap<u64, u32>,
    /// The version of the code that planned it.
    pub(super) needs: BTreeMap<u64, u32>,
    /// Claims whose handlers succeeded.
    pub(super) succeeded: BTreeSet<u64>,
    /// Lost claims that did not count, since a run last ended.
    pub(super) uncounted: u32,
}

impl Ledger {
    /// Records a change of a task. Returns the violations.
    pub(crate) fn saw(
        &self,
        key: &TaskKey,
        before: Option<&Task>,
        after: Option<Task>,
        by: &str,
        how: Wrote,
    ) -> Vec<String> {
        let mut state = self.state();
        let mut wrong = Vec::new();
        let label = format!("{}/{}", key.reaction, key.document);
        match (before, &after) {
            (_, None) => state.sometimes[Sometimes::Forgotten as usize] += 1,
            (None, Some(after)) => {
                let code = state.nodes.get(by).map_or(0, |node| node.code);
                let known = state.tasks.entry(key.clone()).or_default();
                if after.generation > 0 && known.done.contains(&after.generation) {
                    wrong.push(format!(
                        "I5: {label} was deleted, and its generation {} is used again",
                        after.generation
                    ));
                }
                // In any other state, a planner that does not know the reaction only left a note to
                // check the task.
                if after.state == Is::Pending {
                    known.needs.insert(after.generation, code);
                }
            }
            (Some(before), Some(after)) => state.changed(&mut wrong, before, after, by, how),
        }
        state.tasks.entry(key.clone()).or_default().last = after;
        wrong
    }
}

impl State {
    /// Checks a change of an existing task.
    fn changed(&mut self, wrong: &mut Vec<String>, before: &Task, after: &Task, by: &str, how: Wrote) {
        let label = format!("{}/{}", before.key.reaction, before.key.document);
        let is_claimed = |task: &Task| matches!(task.state, Is::Running | Is::Changed);
        if after.epoch < before.epoch || after.generation < before.generation {
            wrong.push(format!("I12: the epoch or the generation of {label} fell"));
        }
        if is_claimed(before) && !is_claimed(after) {
            return self.ended(wrong, before, after, by, how);
        }
        if after.epoch > before.epoch {
            return self.claimed(wrong, before, after, by);
        }
        if after.suspicion < before.suspicion {
            self.sometimes[Sometimes::Acquitted as usize] += 1;
        }
        let code = self.nodes.get(by).map_or(0, |node| node.code);
        let known = self.tasks.entry(before.key.clone()).or_default();
        if is_claimed(after) && after.due != before.due {
            known.renewed = Some(Instant::now());
        }
        if after.generation > before.generation {
            known.needs.insert(after.generation, code);
            if known.done.contains(&after.generation) {
                wrong.push(format!("I5: the generation {} of {label} is used again", after.generation));
            }
        } else if by == "operator" || before.state == Is::Failed && after.state == Is::Pending {
            *known.retried.entry(after.generation).or_default() += 1;
            self.sometimes[Sometimes::ByHand as usize] += 1;
        } else if after.state == Is::Done && before.state != Is::Done {
            wrong.push(format!("I12: {label} is done without a run"));
        }
    }
}
