//! Random numbers from a seed (`SplitMix64`).

use std::time::Duration;

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1))
    }

    /// Returns separate dice for a thread, so that threads do not depend on each other's timing.
    pub(crate) fn split(&mut self) -> Self {
        Self::new(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % end).unwrap_or(0)
    }

    /// Returns one of the given values.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Returns a duration between two others, in milliseconds.
    pub(crate) fn between(&mut self, from: Duration, to: Duration) -> Duration {
        let span = usize::try_from(to.saturating_sub(from).as_millis()).unwrap_or(usize::MAX);
        from + Duration::from_millis(self.below(span + 1) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let (mut one, mut other) = (Dice::new(7), Dice::new(7));
        let numbers: Vec<_> = (0..10).map(|_| one.next()).collect();
        assert!(numbers.iter().all(|number| *number == other.next()));
        assert_ne!(Dice::new(8).next(), numbers[0]);
    }

    #[test]
    fn durations_stay_between_their_ends() {
        let (mut dice, from, to) = (Dice::new(1), Duration::from_secs(1), Duration::from_secs(2));
        assert!((0..100).all(|_| (from..=to).contains(&dice.between(from, to))));
        assert_eq!(dice.between(to, to), to);
    }
}
