//! The configuration of the reactions in a world.

use std::time::Duration;

use leftfold::react::{Cleanup, Evolution};

use crate::dice::Dice;
use crate::faults::{Fault, Faults};

/// The configuration of the reactions in a world, and the rates of handler faults per thousand
/// runs.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) attempts: u32,
    pub(super) visibility: Duration,
    pub(super) debounce: Duration,
    pub(super) cleanup: Cleanup,
    pub(super) evolution: Evolution,
    pub(super) concurrency: usize,
    pub(super) from_start: bool,
    pub(super) fails: u64,
    pub(super) defers: u64,
    pub(super) throttles: u64,
    pub(super) lingers: u64,
}

impl Setup {
    pub(super) fn drawn(dice: &Dice, faults: &Faults) -> Self {
        let rate = |most| if dice.happens(600) { dice.below(most) } else { 0 };
        // A change that was planned before a task is deleted must not be written after that.
        let are_late =
            [Fault::Delayed, Fault::Pause, Fault::Slow].into_iter().any(|fault| faults.is_on(fault));
        let keep_for = Duration::from_secs(if are_late { 25 } else { 1 });
        let cleanups = [Cleanup::Keep, Cleanup::Gone(keep_for), Cleanup::GoneOrOutside(keep_for)];
        let evolutions = [Evolution::Nothing, Evolution::FailedAgain, Evolution::AllAgain];
        Self {
            attempts: 1 + u32::try_from(dice.below(4)).unwrap_or(0),
            visibility: Duration::from_millis(500)
                + dice.time(Duration::from_millis(if dice.happens(300) { 300 } else { 4_000 })),
            debounce: if dice.happens(300) { dice.time(Duration::from_secs(2)) } else { Duration::ZERO },
            cleanup: dice.pick(&cleanups).copied().unwrap_or(Cleanup::Keep),
            evolution: dice.pick(&evolutions).copied().unwrap_or_default(),
            concurrency: 1 + usize::try_from(dice.below(8)).unwrap_or(0),
            from_start: dice.happens(500),
            fails: rate(400),
            defers: rate(200),
            throttles: rate(100),
            lingers: rate(300),
        }
    }
}
