//! Pseudo-random numbers: the same for the same seed.

use std::time::Duration;

/// Spreads a number over all 64 bits (the finalizer of splitmix64).
pub(crate) fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number from 0 to `limit` - 1.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % (limit.max(1) as u64)).unwrap_or(0)
    }

    /// Returns a random part of a duration.
    pub(crate) fn part_of(&mut self, whole: Duration) -> Duration {
        whole.mul_f64(f64::from(u32::try_from(self.next() >> 32).unwrap_or(0)) / f64::from(u32::MAX))
    }
}
