//! Rebuilds of documents beside the live ones, and verification of stored documents against the
//! log.

mod operations;

pub(super) use self::operations::operations;
pub(crate) use self::operations::{Rebuilds, take_up};
