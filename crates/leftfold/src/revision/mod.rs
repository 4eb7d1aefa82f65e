//! Revision numbers for producers that have none: from the clock, or counted in the store.
//!
//! | module | purpose |
//! | --- | --- |
//! | `clock` | revisions from the wall clock |
//! | `counter` | revisions that are counted in a store |

mod clock;
mod counter;

pub use clock::Clock;
pub use counter::{Counter, Counters, Draw, REMEMBERED_CLIENTS};
