//! The kinds of faults. Each kind is on or off for a seed, and the seed decides its rate, so every
//! run has its own mixture.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::dice::Dice;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An operation fails and does nothing.
    Fails,
    /// A write happens, but its caller gets an unknown outcome.
    AppliedUnknown,
    /// A write does not happen, and its caller gets an unknown outcome.
    LostUnknown,
    /// A write happens later, maybe after its caller is gone. The caller gets an unknown outcome.
    Delayed,
    /// A read returns an earlier state.
    Stale,
    /// A commit is rejected as if others kept changing the same documents.
    Storm,
    /// Without transactions: a part of a commit is rejected.
    Refused,
    /// Without transactions: a commit stops halfway, and its caller gets an unknown outcome.
    Halfway,
    /// Without transactions: the writes to a collection happen in another order than given.
    Disorder,
    /// Without transactions: a part of a commit happens later, maybe after its caller is gone. The
    /// caller gets an unknown outcome.
    Trailing,
    /// A lease ends early.
    Lease,
    /// An operation is slow.
    Slow,
    /// The store is down for some time.
    Down,
    /// A worker dies.
    Crash,
    /// A worker is paused for longer than its lease, then continues.
    Pause,
    /// A worker's clock jumps by hours, or stops.
    Clock,
    /// An operator changes documents beside the workers.
    Meddling,
    /// An operator rebuilds documents, then switches to them, discards them or undoes the switch.
    Rebuilding,
    /// A feed delivers an event twice.
    Twice,
    /// A feed delivers an event after later ones.
    Reordered,
    /// A feed never delivers an event.
    Lost,
    /// A feed delivers two events with the same stream and revision.
    Twin,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 22] = [
        Self::Fails,
        Self::AppliedUnknown,
        Self::LostUnknown,
        Self::Delayed,
        Self::Stale,
        Self::Storm,
        Self::Refused,
        Self::Halfway,
        Self::Disorder,
        Self::Trailing,
        Self::Lease,
        Self::Slow,
        Self::Down,
        Self::Crash,
        Self::Pause,
        Self::Clock,
        Self::Meddling,
        Self::Rebuilding,
        Self::Twice,
        Self::Reordered,
        Self::Lost,
        Self::Twin,
    ];

    /// Returns the maximum rate, per thousand chances.
    fn most(self) -> u64 {
        match self {
            Self::Fails | Self::AppliedUnknown | Self::LostUnknown | Self::Delayed => 80,
            Self::Stale => 300,
            Self::Slow | Self::Storm | Self::Refused | Self::Twin => 100,
            Self::Down => 5,
            Self::Crash | Self::Pause | Self::Clock => 200,
            Self::Halfway | Self::Trailing | Self::Lost => 150,
            Self::Disorder => 1_000,
            // Often no lease holds, and all workers work at once.
            Self::Lease => 2_000,
            Self::Meddling | Self::Rebuilding => 800,
            Self::Twice | Self::Reordered => 500,
        }
    }
}

/// The faults of one seed, and the number of times each has occurred.
#[derive(Debug)]
pub struct Faults {
    rates: [u64; Fault::ALL.len()],
    met: [AtomicU64; Fault::ALL.len()],
    calm: AtomicBool,
    dice: Dice,
}

impl Faults {
    /// Draws the faults with the dice.
    pub fn drawn(dice: &Dice) -> Self {
        let dice = dice.split();
        let rates = Fault::ALL.map(|fault| if dice.happens(600) { dice.below(fault.most()) } else { 0 });
        Self { rates, met: Default::default(), calm: false.into(), dice }
    }

    /// Returns whether the fault occurs now.
    pub fn strikes(&self, fault: Fault) -> bool {
        let at = fault as usize;
        let strikes = !self.is_calm() && self.dice.happens(self.rates[at]);
        if strikes {
            self.met[at].fetch_add(1, Ordering::Relaxed);
        }
        strikes
    }

    /// Returns whether the fault can occur.
    pub fn is_on(&self, fault: Fault) -> bool {
        !self.is_calm() && self.rates[fault as usize] > 0
    }

    /// Returns the dice that decide.
    pub fn dice(&self) -> &Dice {
        &self.dice
    }

    /// Sets the rates of some faults, per thousand chances.
    #[must_use]
    pub fn with(mut self, rates: &[(Fault, u64)]) -> Self {
        for (fault, rate) in rates {
            self.rates[*fault as usize] = *rate;
        }
        self
    }

    /// Returns faults that never occur.
    pub fn none() -> Self {
        let none = Self::drawn(&Dice::new(0));
        none.end();
        none
    }

    /// Ends all faults.
    pub fn end(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }

    /// Returns whether all faults have ended.
    pub fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    /// Returns the number of times each fault has occurred.
    pub fn met(&self) -> [u64; Fault::ALL.len()] {
        std::array::from_fn(|at| self.met[at].load(Ordering::Relaxed))
    }
}
