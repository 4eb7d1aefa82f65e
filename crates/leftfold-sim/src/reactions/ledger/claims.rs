//! Checks of claims, when they begin and when they end.

use std::time::Duration;

use leftfold::react::{Ended, State as Is, Suspicion, Task};
use tokio::time::Instant;

use super::nodes::{Node, name_of};
use super::sometimes::Sometimes;
use super::state::State;
use super::tasks::Wrote;

/// The number of times a task may be lost before it runs alone. `EXCUSES` is the number of excused
/// losses.
const LEVELS: u32 = 3;
const EXCUSES: u8 = 3;

impl State {
    /// Checks a claim of a task.
    pub(super) fn claimed(&mut self, wrong: &mut Vec<String>, before: &Task, after: &Task, by: &str) {
        let label = format!("{}/{}", before.key.reaction, before.key.document);
        let offered = self.offered.get(&(by.to_owned(), before.key.clone())).copied();
        let holdup = self.holdups.get(&before.key.reaction).cloned().unwrap_or_default();
        if let Some(offered) = offered {
            if holdup.paused.is_some_and(|paused| offered > paused) {
                wrong.push(format!("I13: {label} was claimed although it is paused"));
            }
            // A node knows the store's time to a tenth of a second.
            let is_held_up = |(from, until)| offered > from && offered + Duration::from_millis(100) < until;
            if holdup.throttled.is_some_and(is_held_up) {
                wrong.push(format!("I13: {label} was claimed although it is throttled"));
            }
        } else {
            wrong.push(format!("I13: {label} was claimed although it was not due"));
        }
        let code = self.nodes.get(by).map_or(0, |node| node.code);
        let generation = before.generation;
        let attempts = self.attempts;
        if before.state != Is::Pending {
            wrong.push(format!("I12: {label} was claimed although {:?} has its claim", before.owner));
        }
        let known = self.tasks.entry(before.key.clone()).or_default();
        let needs = known.needs.get(&generation).copied().unwrap_or(0);
        if code < needs.max(before.needs) {
            wrong.push(format!("I13: {by} has code {code} and claimed {label}, which needs {needs}"));
        }
        if code > needs {
            self.sometimes[Sometimes::Newer as usize] += 1;
        }
        known.running = Some((after.epoch, generation));
        known.renewed = Some(Instant::now());
        let claims = known.claims.entry(generation).or_default();
        *claims += 1;
        let retries = known.retried.get(&generation).copied().unwrap_or(0);
        let most = attempts * (1 + retries) + retries + known.forgiven.get(&generation).copied().unwrap_or(0);
        if *claims > most {
            wrong.push(format!("I12: {label} was claimed {claims} times for generation {generation}"));
        }
        if retries == 0 && known.done.contains(&generation) {
            wrong.push(format!("I5: generation {generation} of {label} is done, and was claimed again"));
        }
    }

    /// Checks that a claim ends by itself only if its node could not renew it.
    fn is_excused(&self, wrong: &mut Vec<String>, before: &Task, label: &str) {
        let Some(node) = node_of(before).and_then(|owner| self.nodes.get(owner)) else { return };
        let renewed = self.tasks.get(&before.key).and_then(|known| known.renewed);
        let silent = renewed.and_then(|renewed| renewed.checked_sub(self.visibility));
        if !node.is_gone() && node.troubles_since(silent) < 2 {
            let (owner, epoch) = (node_of(before).unwrap_or_default(), before.epoch);
            wrong.push(format!("I12: {owner} met no faults, and lost claim {epoch} of {label}"));
        }
    }

    /// Checks the loss of a claim.
    fn lost(&mut self, wrong: &mut Vec<String>, before: &Task, after: &Task, counts: bool, label: &str) {
        self.sometimes[Sometimes::TakenOver as usize] += 1;
        self.is_excused(wrong, before, label);
        if after.state == Is::Failed {
            self.sometimes[Sometimes::Poisoned as usize] += 1;
        }
        let owner = node_of(before).unwrap_or_default();
        let claim = (before.key.clone(), before.epoch);
        let is_gone = self.nodes.get(owner).is_none_or(Node::is_gone);
        if counts && is_gone && before.excused < EXCUSES && self.company.contains(&claim) {
            wrong.push(format!("I14: {label} was lost with other tasks, and that counts as an attempt"));
        }
        let was_alone = before.suspicion == Suspicion::Alone && before.state == Is::Running;
        if was_alone && !counts && after.excused == before.excused {
            wrong.push(format!("I14: {label} was lost while it ran alone, and that does not count"));
        }
        if after.suspicion > before.suspicion {
            self.sometimes[Sometimes::Suspected as usize] += 1;
            // The worker that took the claim over has checked for heartbeats at some time since the
            // claim ended.
            let renewed = self.tasks.get(&before.key).and_then(|known| known.renewed);
            let was_alive = |(since, until): &(Instant, Instant)| {
                renewed.is_some_and(|renewed| *since <= renewed + self.visibility) && *until > Instant::now()
            };
            if self.alive.get(owner).is_some_and(was_alive) {
                wrong.push(format!("I14: {owner} sent heartbeats, and {label} is suspected"));
            }
        }
        let known = self.tasks.entry(before.key.clone()).or_default();
        if counts {
            return;
        }
        known.uncounted += 1;
        let retries: u32 = known.retried.values().sum();
        if known.uncounted > (LEVELS + u32::from(EXCUSES)) * (1 + retries) {
            wrong.push(format!("I12: {label} was lost {} times, and no attempt counts", known.uncounted));
        }
    }

    /// Checks the end of a claim.
    pub(super) fn ended(
        &mut self,
        wrong: &mut Vec<String>,
        before: &Task,
        after: &Task,
        by: &str,
        how: Wrote,
    ) {
        let label = format!("{}/{}", before.key.reaction, before.key.document);
        let new = after.history.last().filter(|_| after.history.len() > before.history.len());
        let outcome = new.map(|run| run.outcome);
        let attempts = self.attempts;
        let is_booked = matches!(before.key.reaction.as_str(), "books" | "tally");
        let is_lost = outcome == Some(Ended::Lost);
        let counts = is_lost && (after.state == Is::Failed || is_counted(before, after));
        if is_lost {
            self.lost(wrong, before, after, counts, &label);
        } else if node_of(before) != Some(by) {
            wrong.push(format!(
                "I12: {by} ended claim {} of {label}, which belongs to {:?}",
                before.epoch, before.owner
            ));
        }
        let known = self.tasks.entry(before.key.clone()).or_default();
        let (epoch, generation) = known.running.unwrap_or_default();
        if outcome.is_some_and(|outcome| outcome != Ended::Lost) {
            known.uncounted = 0;
        }
        let mut counted = None;
        match outcome {
            Some(Ended::Done) => {
                if !known.succeeded.contains(&epoch) {
                    wrong.push(format!(
                        "I12: claim {epoch} of {label} is done, and its handler did not succeed"
                    ));
                }
                if is_booked && how == Wrote::Alone {
                    wrong.push(format!("I4: claim {epoch} of {label} is done, and has no effect"));
                }
                known.done.insert(generation);
            }
            Some(Ended::Stale) => counted = Some(Sometimes::Stale),
            Some(Ended::Deferred) => {
                *known.forgiven.entry(generation).or_default() += 1;
                counted = Some(Sometimes::Deferred);
            }
            Some(Ended::Lost) if !counts => *known.forgiven.entry(generation).or_default() += 1,
            Some(Ended::Failed | Ended::Lost) => {}
            None => {
                *known.forgiven.entry(generation).or_default() += 1;
                counted = Some(Sometimes::GivenBack);
            }
        }
        if after.state == Is::Failed {
            let claims = known.claims.get(&generation).copied().unwrap_or(0);
            let forgiven = known.forgiven.get(&generation).copied().unwrap_or(0);
            if claims < attempts + forgiven {
                wrong.push(format!(
                    "I12: {label} was given up after {claims} claims, and {forgiven} of them do not count"
                ));
            }
            counted = Some(Sometimes::Failed);
        }
        if let Some(counted) = counted {
            self.sometimes[counted as usize] += 1;
        }
        if after.generation > before.generation {
            let needs = known.needs.get(&before.generation).copied().unwrap_or(0);
            known.needs.insert(after.generation, needs);
        }
        known.running = None;
    }
}

/// Returns the node that has claimed a task. Workers append a number to its name.
pub(super) fn node_of(task: &Task) -> Option<&str> {
    Some(name_of(task.owner.as_deref()?))
}

/// Returns whether a lost claim counts as an attempt.
fn is_counted(before: &Task, after: &Task) -> bool {
    before.state == Is::Running && after.attempts > 0 && after.attempts == before.attempts
}
