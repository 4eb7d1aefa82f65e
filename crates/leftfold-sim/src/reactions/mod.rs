//! A world of reactions, on a store with faults.
//!
//! Documents change, nodes plan, run, die and pause, old code runs beside new, and an operator
//! interferes. Then the faults end, and the last state of every document must be handled.

mod actors;
mod final_state;
mod handlers;
pub(crate) mod ledger;
mod nodes;
mod setup;
mod things;
mod world;

pub(crate) use things::Thing;
pub(crate) use world::World;
