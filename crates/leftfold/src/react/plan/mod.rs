//! Planning: changed documents and new events become tasks.

pub(crate) mod events;
pub(crate) mod planner;
