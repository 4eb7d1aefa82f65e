//! The projector on the store in memory: each event once and in order, whatever stops, fails or
//! competes.
//!
//! | module | purpose |
//! | --- | --- |
//! | `folding` | from events to documents |
//! | `reading` | reads, explanations and measurements |
//! | `failures` | events that fail, and documents that can't be stored |
//! | `workers` | workers that compete, die and stop |
//! | `fixtures` | values and checks that these tests share |

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

#[path = "../common/mod.rs"]
mod common;
mod failures;
mod fixtures;
mod folding;
mod reading;
mod workers;
