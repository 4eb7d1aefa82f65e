//! Planning: changed documents and new events become tasks.
//!
//! | module | purpose |
//! | --- | --- |
//! | `register` | a process announces its definition of a reaction |
//! | `lease` | one process at a time follows a feed |
//! | `follow` | reads the feed of changed documents |
//! | `events` | reads the log, for reactions to events |
//! | `planner` | observes documents, and changes their tasks |
//! | `check` | documents that are due to be observed again |
//! | `compare` | all documents of a reaction |
//! | `sweep` | deletes tasks |

mod check;
mod compare;
mod events;
mod follow;
mod lease;
mod planner;
mod register;
mod sweep;

pub(crate) use check::check_and_compare;
pub(crate) use events::{begin_events, follow_events, is_caught_up};
pub(crate) use follow::{follow, place_name};
pub(crate) use register::register;
pub(crate) use sweep::SWEEP_EVERY;

/// The maximum number of changes or documents that are processed at once.
const PIECE: usize = 500;
