//! What a process measures while it folds a projection, for those who watch it.

use std::time::Duration;

/// How often values were as large as that.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    bounds: &'static [f64],
    /// Of each bound those up to it that are above the one before, and at last those above all.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// Creates an empty one with these upper bounds, in ascending order.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    /// Counts a value.
    pub fn add(&mut self, value: f64) {
        let at = self.bounds.partition_point(|bound| *bound < value);
        self.counts[at] += 1;
        self.sum += value;
    }

    /// Each bound, with how many values there were up to it.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut all = 0;
        self.bounds.iter().zip(&self.counts).map(move |(bound, count)| {
            all += count;
            (*bound, all)
        })
    }

    /// How many values there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All values together.
    pub fn sum(&self) -> f64 {
        self.sum
    }
}

/// What this process has measured since it began to fold a projection.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Figures {
    /// How long commits took, in seconds, with all that was repeated because its outcome was unknown.
    pub commit_seconds: Histogram,
    /// How many events a batch had.
    pub batch_events: Histogram,
    /// How many documents a batch wrote.
    pub batch_documents: Histogram,
    /// Applications of an event whose document was at hand.
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
    /// A batch was committed.
    pub(super) fn committed(&mut self, events: u64, documents: usize, took: Duration) {
        self.commit_seconds.add(took.as_secs_f64());
        self.batch_events.add(float(events));
        self.batch_documents.add(float(documents as u64));
    }

    /// So many applications needed a document, and so many documents had to be loaded for them.
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
