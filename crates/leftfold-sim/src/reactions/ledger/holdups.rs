//! Paused and throttled reactions, and the tasks that were offered meanwhile.

use leftfold::react::Task;
use tokio::time::Instant;

use super::sometimes::Sometimes;
use super::state::Ledger;

/// The times at which a reaction was throttled or paused, as reported to a handler or an operator.
#[derive(Clone, Debug, Default)]
pub(super) struct Holdup {
    pub(super) throttled: Option<(Instant, Instant)>,
    pub(super) paused: Option<Instant>,
    pub(super) resuming: bool,
}

impl Ledger {
    /// Records that these tasks were offered to a node as due.
    pub(crate) fn offered(&self, node: &str, tasks: &[Task]) {
        let mut state = self.state();
        for task in tasks {
            state.offered.insert((node.to_owned(), task.key.clone()), Instant::now());
        }
    }

    /// Records that a handler has throttled its reaction until `until`.
    pub(crate) fn throttled(&self, reaction: &str, until: Instant) {
        self.happened(Sometimes::HeldUp);
        let mut state = self.state();
        let holdup = state.holdups.entry(reaction.to_owned()).or_default();
        if !holdup.resuming {
            let until = holdup.throttled.map_or(until, |(_, before)| before.max(until));
            holdup.throttled = Some((Instant::now(), until));
        }
    }

    /// Records that an operator has paused a reaction.
    pub(crate) fn paused(&self, reaction: &str) {
        self.happened(Sometimes::Paused);
        self.state().holdups.entry(reaction.to_owned()).or_default().paused = Some(Instant::now());
    }

    /// Records that an operator starts to resume a reaction, or has resumed it.
    pub(crate) fn resumes(&self, reaction: &str, begins: bool) {
        let mut state = self.state();
        *state.holdups.entry(reaction.to_owned()).or_default() =
            Holdup { resuming: begins, ..Holdup::default() };
    }
}
