//! Leftfold's collections and indexes, and their format.
//!
//! Leftfold's collections have names that begin with `leftfold.`; only views use the names that
//! users gave to projections. Existing collections are checked before anything is written. Leftfold
//! never touches collections of other programs.

mod create;
mod definitions;
mod format;
pub(crate) mod indexes;

pub(crate) use self::create::{create, create_log, create_sequences};
pub(crate) use self::definitions::{
    CHECKPOINTS, CONFLICTS, COUNTERS, EVENTS, FEEDS, GENERATIONS, HEADS, HELD, LEASES, META, REACTIONS,
    REJECTED, REJECTING, SEQUENCES, SKIPPED, TASKS, WAKES, WORKERS, records,
};
pub(crate) use self::format::{FORMAT, check_existing, stored_partitions};

/// The largest number of partitions of a log.
pub(crate) const MAX_PARTITIONS: u16 = 1_024;
