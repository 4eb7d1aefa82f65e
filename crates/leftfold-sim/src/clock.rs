//! The clock and the random source of an actor.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use leftfold::Env;
use tokio::time::Instant;

use crate::dice::Dice;
use crate::faults::Fault;
use crate::store::{MIDNIGHT, SimStore};

/// A clock that jumps and stops, and a random source that repeats for the same seed.
pub(crate) struct Clock {
    dice: Dice,
    began: Instant,
    skew: AtomicI64,
    frozen: AtomicBool,
    store: SimStore,
}

impl Clock {
    pub(crate) fn new(dice: Dice, store: SimStore) -> Self {
        Self { dice, began: Instant::now(), skew: AtomicI64::new(0), frozen: AtomicBool::new(false), store }
    }
}

impl Env for Clock {
    fn now(&self) -> Timestamp {
        if self.store.shared().faults.strikes(Fault::Clock) {
            let hours = i64::try_from(self.dice.below(20)).unwrap_or(0) - 10;
            self.skew.store(hours * 3_600, Ordering::Relaxed);
            self.frozen.store(self.dice.happens(300), Ordering::Relaxed);
        }
        let frozen = self.frozen.load(Ordering::Relaxed) && !self.store.shared().faults.is_calm();
        let passed = if frozen { Duration::ZERO } else { self.began.elapsed() };
        let midnight = MIDNIGHT + SignedDuration::from_secs(self.skew.load(Ordering::Relaxed));
        midnight + SignedDuration::try_from(passed).unwrap_or_default()
    }

    fn random(&self) -> u64 {
        self.dice.next()
    }
}
