//! Measurements of a process while it folds a projection, for monitoring.

use std::time::Duration;

/// A histogram of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    bounds: &'static [f64],
    /// The number of values per bucket: above the previous bound, up to this one. The last bucket
    /// has no bound.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// Creates an empty histogram with these upper bounds, in ascending order.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        let at = self.bounds.partition_point(|bound| *bound < value);
        self.counts[at] += 1;
        self.sum += value;
    }

    /// Returns each bound with the number of values up to it.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut all = 0;
        self.bounds.iter().zip(&self.counts).map(move |(bound, count)| {
            all += count;
            (*bound, all)
        })
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all values.
    pub fn sum(&self) -> f64 {
        self.sum
    }
}

/// The measurements since this process began to fold a projection.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Figures {
    /// The duration of commits, in seconds, including repetitions after an unknown outcome.
    pub commit_seconds: Histogram,
    /// The number of events per batch.
    pub batch_events: Histogram,
    /// The number of documents written per batch.
    pub batch_documents: Histogram,
    /// Applications of an event whose document was in memory.
    pub cache_hits: u64,
    /// Documents that had to be loaded.
    pub cache_misses: u64,
}

impl Default for Figures {
    fn default() -> Self {
        const SECONDS: &[f64] =
            &[0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
        const MANY: &[f64] = &[1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5];
        Self {
            commit_seconds: Histogram::new(SECONDS),
            batch_events: Histogram::new(MANY),
            batch_documents: Histogram::new(MANY),
            cache_hits: 0,
            cache_misses: 0,
        }
    }
}

impl Figures {
    /// Records a commit.
    pub(super) fn committed(&mut self, events: u64, documents: usize, took: Duration) {
        self.commit_seconds.add(took.as_secs_f64());
        self.batch_events.add(float(events));
        self.batch_documents.add(float(documents as u64));
    }

    /// Records the number of applications that needed a document, and of documents loaded for them.
    pub(super) fn looked_up(&mut self, needed: u64, loaded: u64) {
        self.cache_misses += loaded;
        self.cache_hits += needed.saturating_sub(loaded);
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people to read")]
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_up_to_each_bound() {
        let mut histogram = Histogram::new(&[1.0, 10.0]);
        for value in [0.5, 1.0, 1.5, 10.0, 11.0] {
            histogram.add(value);
        }
        assert_eq!(histogram.buckets().collect::<Vec<_>>(), [(1.0, 2), (10.0, 4)]);
        assert_eq!((histogram.count(), histogram.sum()), (5, 24.0));
    }
}
