//! Things that happen in some runs.

use crate::contents::ledger::SOMETIMES as OF_CONTENTS;
use crate::reactions::ledger::SOMETIMES as OF_REACTIONS;

/// Things that happen in some runs. A set of seeds in which one of these never happens tests too
/// little.
pub const SOMETIMES: [&str; BEFORE_CONTENTS + OF_CONTENTS.len()] = {
    let (mut all, mut at) = ([""; BEFORE_CONTENTS + OF_CONTENTS.len()], 0);
    while at < all.len() {
        all[at] = if at < OF_EVENTS.len() {
            OF_EVENTS[at]
        } else if at < BEFORE_CONTENTS {
            OF_REACTIONS[at - OF_EVENTS.len()]
        } else {
            OF_CONTENTS[at - BEFORE_CONTENTS]
        };
        at += 1;
    }
    all
};

/// The index of the first entry about documents without events.
pub(super) const BEFORE_CONTENTS: usize = OF_EVENTS.len() + OF_REACTIONS.len();

/// The entries about events and documents.
pub(super) const OF_EVENTS: [&str; 16] = [
    "conflicts",
    "documents or streams parked",
    "events parked",
    "events skipped as folded before",
    "folds retried",
    "appends rejected",
    "reads that waited",
    "reads of parked documents",
    "deliveries held",
    "held events released",
    "missing events healed",
    "duplicate deliveries",
    "conflicting deliveries",
    "deliveries rejected because the holding area was full",
    "rebuilds switched",
    "rebuilds undone",
];
