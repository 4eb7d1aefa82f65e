//! Leftfold's engine in a simulated world that breaks, deterministically, by seed.
//!
//! The real engine runs over a simulated store, clock and chance, in a paused time of its own: one seed decides
//! everything that happens, so that what failed once can be seen again. The [`checker`] knows nothing of the engine and works
//! on any store: it also reads what real processes left.

mod actors;
pub mod checker;
mod contents;
pub mod crashes;
pub mod dice;
pub mod faults;
pub mod feed;
pub mod fuse;
pub mod notes;
mod reactions;
mod reactive;
mod sabotage;
mod sequences;
pub mod store;
pub mod trace;
pub mod world;
