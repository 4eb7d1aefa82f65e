//! A deterministic simulation of Leftfold's engine in a world with faults.
//!
//! It finds bugs that need a rare sequence of events. A worker dies inside a commit, two workers
//! have the same lease, or a write arrives late. The real engine runs on a simulated [store], clock
//! and random source, in its own paused time. One seed decides everything, so every failure can be
//! reproduced.
//!
//! The [checker] and the [feed] check their invariants after each write, and the final state. The
//! checker shares no code with the engine and works on any store, so `leftfold-rig` uses it to
//! check the data of real processes.
//!
//! # Example: run one seed
//!
//! ```
//! use leftfold_sim::world;
//!
//! let run = world::run(7, false)?;
//! assert!(run.events > 0);
//! assert!(run.violations.is_empty(), "{:?}", run.violations);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! `cargo run --release -p leftfold-sim -- --seeds 2000` runs many seeds on all cores.

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
