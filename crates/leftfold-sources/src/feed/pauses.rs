//! Delays after failures.

use std::time::Duration;

use leftfold::{Backoff, Env};

/// Delays that grow until the feed recovers.
pub(super) struct Pauses {
    backoff: Backoff,
    delays: Option<Box<dyn Iterator<Item = Duration> + Send>>,
    /// The delay that was announced to the source and not waited for yet.
    pub(super) last: Option<Duration>,
}

impl Pauses {
    pub(super) fn new(backoff: Backoff) -> Self {
        Self { backoff, delays: None, last: None }
    }

    pub(super) fn over(self) -> Self {
        Self::new(self.backoff)
    }

    pub(super) fn next(&mut self, env: &dyn Env) -> Option<Duration> {
        let backoff = self.backoff;
        self.delays.get_or_insert_with(|| Box::new(backoff.delays(env.random()))).next()
    }
}
