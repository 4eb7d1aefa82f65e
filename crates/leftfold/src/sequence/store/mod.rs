//! The sequencer's state in a store, beside the log: held events, the gaps of their streams, and
//! conflicts.
//!
//! | module | purpose |
//! | --- | --- |
//! | `sequences` | the trait of stores |
//! | `settlement` | the changes of streams that are written atomically |
//! | `state` | the states of streams and their gaps, and the totals of partitions |
//! | `held` | events that arrived before their predecessors |
//! | `conflict` | events that conflict with the stored ones |
//! | `rejected` | messages that are not valid events |

mod conflict;
mod held;
mod rejected;
mod sequences;
mod settlement;
mod state;

pub use conflict::{Conflict, ConflictReason, Resolution};
pub(crate) use held::held_bytes;
pub use held::{Found, Held, HeldPage, WantedEvents};
pub use rejected::{MAX_REJECTED, Rejected, too_many_rejected};
pub use sequences::Sequences;
pub use settlement::{Settled, Settlement, Skipped, StreamChange};
pub use state::{DueGaps, StreamState, StreamVersion, Survey, Totals, Waiting};
