//! One run, on a store with faults: producers, workers that die and pause, operators and readers.
//! Then the faults end, and the state must become correct.

mod clients;
mod final_state;
mod phases;
mod producer;
mod responses;
mod run;
mod setup;
mod sometimes;
mod workers;

pub(crate) use clients::read_own;
pub(crate) use run::in_own_time;
pub use run::{WorldRun, run};
pub(crate) use setup::World;
pub use sometimes::SOMETIMES;
