//! Retry policies.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

/// Exponential backoff with jitter and a limit.
///
/// ```
/// use std::time::Duration;
/// use leftfold::Backoff;
///
/// let patient = Backoff::default().first(Duration::from_millis(50)).limit(8);
/// assert_eq!(patient.delays(7).count(), 8);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    limit: Option<usize>,
}

impl Default for Backoff {
    /// Returns a policy of three retries, after about 10, 20 and 40 milliseconds.
    fn default() -> Self {
        Self { first: Duration::from_millis(10), most: Duration::from_secs(1), limit: Some(3) }
    }
}

impl Backoff {
    /// Returns a policy without retries.
    pub fn never() -> Self {
        Self::default().limit(0)
    }

    /// Sets the delay before the first retry; the delay doubles from there.
    #[must_use]
    pub fn first(self, first: Duration) -> Self {
        Self { first, ..self }
    }

    /// Sets the longest delay.
    #[must_use]
    pub fn most(self, most: Duration) -> Self {
        Self { most, ..self }
    }

    /// Sets the number of retries.
    #[must_use]
    pub fn limit(self, tries: usize) -> Self {
        Self { limit: Some(tries), ..self }
    }

    /// Removes the limit: retries forever.
    #[must_use]
    pub fn without_limit(self) -> Self {
        Self { limit: None, ..self }
    }

    /// Returns the delays between attempts, each with jitter drawn from the seed.
    pub fn delays(self, seed: u64) -> impl Iterator<Item = Duration> + Send {
        let builder = ExponentialBuilder::new()
            .with_min_delay(self.first)
            .with_max_delay(self.most)
            .with_jitter()
            .with_jitter_seed(seed);
        match self.limit {
            Some(limit) => builder.with_max_times(limit),
            None => builder.without_max_times(),
        }
        .build()
    }
}
