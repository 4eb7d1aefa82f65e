//! Rebuilds beside the live documents: with crashes, concurrent appends, and several processes.
//!
//! | module | purpose |
//! | --- | --- |
//! | `switching` | rebuilds and switches that are interrupted |
//! | `versions` | several versions of the code |
//! | `generations` | cancelled rebuilds, parked documents per generation, and verification |
//! | `fixtures` | values and checks that these tests share |

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

#[path = "../common/mod.rs"]
mod common;
mod fixtures;
mod generations;
mod switching;
mod versions;
