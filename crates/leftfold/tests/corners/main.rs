//! Corner cases in which the engine gave a wrong answer, stopped, or lost something.
//!
//! | module | purpose |
//! | --- | --- |
//! | `panics` | panics in the code of a projection |
//! | `reads` | reads of parked and of stale documents |
//! | `repairs` | retries, refolds and manual folds of parked documents |
//! | `workers` | stops, leases and extreme options |
//! | `fixtures` | values and checks that these tests share |

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

#[path = "../common/mod.rs"]
mod common;
mod fixtures;
mod panics;
mod reads;
mod repairs;
#[path = "../common/shaky.rs"]
mod shaky;
mod workers;
