//! The commands for operators of read models.

mod audit;
mod conflicts;
mod doctor;
mod explain;
mod get;
mod held;
mod parked;
mod rebuild;
mod refold;
mod rejected;
mod status;
mod tasks;

pub(crate) use audit::list_audit;
pub(crate) use conflicts::{discard_conflict, keep_stored, list_conflicts, show_conflict};
pub(crate) use doctor::doctor;
pub(crate) use explain::explain;
pub(crate) use get::get;
pub(crate) use held::{list_held, show_held, skip};
pub(crate) use parked::{list_parked, retry_parked};
pub(crate) use rebuild::{rebuild, undo, verify};
pub(crate) use refold::refold;
pub(crate) use rejected::{delete_rejected, list_rejected, resubmit_rejected, show_rejected};
pub(crate) use status::status;
pub(crate) use tasks::{count_tasks, list_tasks, pause_reaction, resume_reaction, retry_tasks, show_task};
