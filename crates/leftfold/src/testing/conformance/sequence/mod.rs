//! The cases about held, conflicting and rejected deliveries.
//!
//! | module | purpose |
//! | --- | --- |
//! | `ingest` | feeds: any order, several processes, other policies |
//! | `held` | held events, and their release |
//! | `gaps` | gaps: skipped by operators, or overdue |
//! | `settlement` | settlements: guarded and atomic |
//! | `conflicts` | events that conflict with stored ones |
//! | `rejected` | messages that are not events |
//! | `fixtures` | values and checks that the cases share |

mod conflicts;
mod fixtures;
mod gaps;
mod held;
mod ingest;
mod rejected;
mod settlement;

pub use conflicts::*;
pub use gaps::*;
pub use held::*;
pub use ingest::*;
pub use rejected::*;
pub use settlement::*;
