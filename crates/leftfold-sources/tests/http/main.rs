//! Posted and resupplied events, over real connections.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod client;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/faulty.rs"]
mod faulty;
mod posted;
mod refused;
mod resupplied;
