//! The requirements for every store, as one suite of tests that runs on each of them.
//!
//! [`conformance!`](crate::conformance) creates a test of each case, for a function that creates an
//! empty store:
//!
//! ```text
//! async fn make(partitions: u16) -> (Sqlite, TempDir) { … }
//!
//! mod three_partitions {
//!     leftfold::conformance!(super::make, partitions: 3);
//! }
//! ```
//!
//! | module | purpose |
//! | --- | --- |
//! | `suite` | the macros that create one test of each case |
//! | `log` | appends, reads, and waits for new events |
//! | `documents` | documents, checkpoints and leases |
//! | `generations` | rebuilds and switches |
//! | `sequence` | held, conflicting and rejected deliveries |
//! | `reactive` | change feeds, tasks, leases and wake-ups |
//! | `contents` | documents without events |
//! | `counters` | counters for producers without revisions |
//! | `support` | values and waits that all cases share |

#![expect(clippy::missing_panics_doc, reason = "a case panics where a store does not conform")]
#![expect(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod contents;
mod counters;
mod documents;
mod generations;
mod log;
mod reactive;
mod sequence;
mod suite;
mod support;

pub use contents::*;
pub use counters::*;
pub use documents::*;
pub use generations::*;
pub use log::*;
pub use reactive::*;
pub use sequence::*;
pub use suite::Atomic;
use support::{append, entry, json, soon, stream, waits};
