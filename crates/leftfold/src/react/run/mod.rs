//! Running: due tasks are claimed, handled and finished.

mod claim;
mod finish;
pub(crate) mod heartbeat;
pub(crate) mod loader;
mod quarantine;
pub(crate) mod runner;
pub(crate) mod running;
