//! Random numbers that repeat for the same seed (`SplitMix64`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A stream of random numbers.
#[derive(Debug)]
pub struct Dice(AtomicU64);

impl Dice {
    /// Creates dice from a seed.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1)))
    }

    /// Returns separate dice that follow from these.
    #[must_use]
    pub fn split(&self) -> Self {
        Self::new(self.next())
    }

    /// Returns the next number.
    pub fn next(&self) -> u64 {
        let mut mixed = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`.
    pub fn below(&self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Returns `true` with a probability of `per_mille` in a thousand.
    pub fn happens(&self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// Returns a random element, if there are any.
    pub fn pick<'a, T>(&self, from: &'a [T]) -> Option<&'a T> {
        from.get(usize::try_from(self.below(from.len() as u64)).ok()?)
    }

    /// Shuffles the elements.
    pub fn shuffle<T>(&self, elements: &mut [T]) {
        for last in (1..elements.len()).rev() {
            elements.swap(last, usize::try_from(self.below(last as u64 + 1)).unwrap_or(last));
        }
    }

    /// Returns a duration below `most`.
    pub fn time(&self, most: Duration) -> Duration {
        Duration::from_micros(self.below(u64::try_from(most.as_micros()).unwrap_or(u64::MAX)))
    }
}
