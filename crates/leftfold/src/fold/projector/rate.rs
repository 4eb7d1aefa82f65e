//! The rate at which a projector folds.

use tokio::time::Instant;

/// Events per second, averaged over the last seconds.
#[derive(Debug, Default)]
pub(super) struct Rate {
    last: Option<Instant>,
    smooth: f64,
}

impl Rate {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people to read")]
    pub(super) fn count(&mut self, events: u64) {
        let now = Instant::now();
        if let Some(last) = self.last.replace(now) {
            let seconds = (now - last).as_secs_f64().max(1e-6);
            let weight = (seconds / 5.0).min(1.0);
            self.smooth += weight * (events as f64 / seconds - self.smooth);
        }
    }

    pub(super) fn per_second(&self) -> f64 {
        let idle = self.last.map_or(0.0, |last| last.elapsed().as_secs_f64());
        self.smooth / (1.0 + (idle / 5.0).powi(2))
    }
}
