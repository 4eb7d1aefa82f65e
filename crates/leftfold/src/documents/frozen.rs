//! Checkpoints that are frozen for a switch.

use super::Checkpoint;
use crate::mark::{Lane, Mark};

/// The lane of a checkpoint's mark with the ticket of the switch it is frozen for.
const FROZEN: &str = "frozen";

/// Returns the ticket of the switch that a checkpoint is frozen for, if it is.
pub(crate) fn frozen(mark: &Mark) -> Option<u64> {
    Some(mark.get(&Lane::named(FROZEN))).filter(|ticket| *ticket > 0)
}

/// Returns the part of a checkpoint's mark that says which events are folded.
pub(crate) fn folded(mark: &Mark) -> Mark {
    let lanes = mark.lanes().filter(|(lane, _)| lane.partition().is_some());
    lanes.map(|(lane, number)| (lane.clone(), number)).collect()
}

/// Returns a checkpoint that is frozen for this switch, or thawed.
pub(crate) fn freeze(checkpoint: &Checkpoint, ticket: Option<u64>) -> Checkpoint {
    let mut mark = folded(&checkpoint.mark);
    if let Some(ticket) = ticket {
        mark.advance(&Lane::named(FROZEN), ticket);
    }
    Checkpoint { mark, tally: checkpoint.tally.clone() }
}
