//! The decision: a pure function from the deliveries and the known state of a stream to its
//! changes.
//!
//! | module | purpose |
//! | --- | --- |
//! | `decide` | the entry: from deliveries and a known state to decisions and a change |
//! | `stream` | the state of a stream while its deliveries are judged |
//! | `place` | deliveries with revisions |
//! | `arrival` | deliveries without revisions, in order of arrival |
//! | `release` | held events that no longer wait |
//! | `gap` | the end of a batch: the change, and the gap that remains |
//! | `capacity` | the limits of held events and conflicts |

mod arrival;
mod capacity;
mod decide;
mod gap;
mod place;
mod release;
mod stream;
#[cfg(test)]
mod tests;

pub use capacity::Capacity;
pub use decide::{Judged, Judgement, Known, judge};
