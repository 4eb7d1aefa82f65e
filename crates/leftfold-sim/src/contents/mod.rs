//! A world of documents without events, on a store with faults.
//!
//! Writers insert, update, change, delete and operate on the same few documents, die, and retry
//! each other's writes. Then the faults end, and every document must agree with the responses that
//! its writers got.

pub(crate) mod ledger;
mod naive;
mod sheet;
mod world;
mod writer;

pub(crate) use world::World;
