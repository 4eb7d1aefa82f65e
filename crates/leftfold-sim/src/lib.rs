//! A deterministic simulation of Leftfold's engine in a world with faults, driven by a seed.
//!
//! The real engine runs on a simulated store, clock and random source, in its own paused time. One
//! seed decides everything, so every failure can be reproduced. The [`checker`] shares no code with
//! the engine and works on any store: it also checks the data of real processes.

pub mod checker;
mod clock;
mod contents;
pub mod crashes;
pub mod dice;
pub mod faults;
pub mod feed;
pub mod fuse;
pub mod gate;
pub mod notes;
mod reactions;
pub mod store;
pub mod trace;
pub mod world;
