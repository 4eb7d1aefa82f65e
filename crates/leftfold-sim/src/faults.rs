//! What can go wrong. Each kind is on or off for a seed, and its rate is drawn for the seed, so that every run
//! has a mixture of its own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::dice::Dice;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An operation fails and does nothing.
    Fails,
    /// A write happens, but who asked for it hears that it can't be told.
    AppliedUnknown,
    /// A write does not happen, and who asked for it hears that it can't be told.
    LostUnknown,
    /// A write happens later, maybe after who asked for it is gone; they hear that it can't be told.
    Delayed,
    /// A read answers with what was true before.
    Stale,
    /// A commit is refused as if others kept changing the same.
    Storm,
    /// Without transactions: a part of a commit is refused.
    Refused,
    /// Without transactions: a commit ends halfway, and who asked for it hears that it can't be told.
    Halfway,
    /// Without transactions: the writes to a collection happen in another order than given.
    Disorder,
    /// Without transactions: a part of a commit happens later, maybe after who asked for it is gone; they hear that it
    /// can't be told.
    Trailing,
    /// A lease ends before its time.
    Lease,
    /// An operation takes long.
    Slow,
    /// The store is down for a while.
    Down,
    /// A worker dies.
    Crash,
    /// A worker stands still for longer than its lease, then goes on.
    Pause,
    /// A worker's clock jumps by hours, or stands still.
    Clock,
    /// Somebody changes documents besides the workers.
    Meddling,
    /// Somebody rebuilds documents, switches to them, gives that up or undoes it.
    Rebuilding,
    /// A feed brings an event twice.
    Twice,
    /// A feed brings an event after later ones.
    Reordered,
    /// A feed never brings an event.
    Lost,
    /// A feed brings two events of the same stream and revision.
    Twin,
}

impl Fault {
    /// All there are.
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

    /// How often it is met at the most, in a thousand chances.
    fn most(self) -> u64 {
        match self {
            Self::Fails | Self::AppliedUnknown | Self::LostUnknown | Self::Delayed => 80,
            Self::Stale => 300,
            Self::Slow | Self::Storm | Self::Refused | Self::Twin => 100,
            Self::Down => 5,
            Self::Crash | Self::Pause | Self::Clock => 200,
            Self::Halfway | Self::Trailing | Self::Lost => 150,
            Self::Disorder => 1_000,
            // Often no lease holds at all, and all workers work at once.
            Self::Lease => 2_000,
            Self::Meddling | Self::Rebuilding => 800,
            Self::Twice | Self::Reordered => 500,
        }
    }
}

/// The faults of one seed, and how often each was met.
#[derive(Debug)]
pub struct Faults {
    rates: [u64; Fault::ALL.len()],
    met: [AtomicU64; Fault::ALL.len()],
    calm: AtomicBool,
    dice: Dice,
}

impl Faults {
    /// The faults that the dice give.
    pub fn drawn(dice: &Dice) -> Self {
        let dice = dice.split();
        let rates = Fault::ALL.map(|fault| if dice.happens(600) { dice.below(fault.most()) } else { 0 });
        Self { rates, met: Default::default(), calm: false.into(), dice }
    }

    /// Whether it happens now.
    pub fn strikes(&self, fault: Fault) -> bool {
        let at = fault as usize;
        let strikes = !self.is_calm() && self.dice.happens(self.rates[at]);
        if strikes {
            self.met[at].fetch_add(1, Ordering::Relaxed);
        }
        strikes
    }

    /// Whether it can happen at all.
    pub fn is_on(&self, fault: Fault) -> bool {
        !self.is_calm() && self.rates[fault as usize] > 0
    }

    /// The dice that decide.
    pub fn dice(&self) -> &Dice {
        &self.dice
    }

    /// The same, and some at a rate of their own: so many in a thousand.
    #[must_use]
    pub fn with(mut self, rates: &[(Fault, u64)]) -> Self {
        for (fault, rate) in rates {
            self.rates[*fault as usize] = *rate;
        }
        self
    }

    /// None at all.
    pub fn none() -> Self {
        let none = Self::drawn(&Dice::new(0));
        none.heal();
        none
    }

    /// From here on nothing goes wrong.
    pub fn heal(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }

    /// Whether nothing goes wrong any more.
    pub fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    /// How often each was met.
    pub fn met(&self) -> [u64; Fault::ALL.len()] {
        std::array::from_fn(|at| self.met[at].load(Ordering::Relaxed))
    }
}
