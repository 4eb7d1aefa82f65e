//! Running: due tasks are claimed, handled and finished.
//!
//! | module | purpose |
//! | --- | --- |
//! | `runner` | the main loop |
//! | `claim` | claims due tasks, and reaps lost claims |
//! | `renew` | keeps claims, and gives them back |
//! | `handle` | runs a handler |
//! | `event` | the event that a task of a stream handles next |
//! | `loader` | reads documents for handlers |
//! | `confirm` | reads documents that handlers did not read |
//! | `finish` | writes the outcomes of runs |
//! | `running` | the runs of this process |
//! | `heartbeat` | the sign that this worker is alive, and its seat for suspects |
//! | `quarantine` | decides when suspects run |
//! | `acquit` | lifts suspicion |

mod acquit;
mod claim;
mod confirm;
mod event;
mod finish;
mod handle;
mod heartbeat;
mod loader;
mod quarantine;
mod renew;
mod runner;
mod running;

pub(crate) use heartbeat::Heartbeat;
pub(crate) use loader::{BYTES, Loader};
pub(crate) use runner::run;
pub(crate) use running::Running;
