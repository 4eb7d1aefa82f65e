//! Leftfold's tables: their definitions and their format.
//!
//! Their names begin with `leftfold_`, and `leftfold_meta` stores their format, so that they can
//! share a file with an application. Only in a file that Leftfold creates does the header also
//! store the format.

mod create;
mod definitions;
mod format;

pub(crate) use self::create::create;
pub(crate) use self::definitions::{JOURNAL, make_tables};
pub(crate) use self::format::{FORMAT, format, partitions, recognise};

/// The largest number of partitions of a log.
pub(crate) const MAX_PARTITIONS: u16 = 1_024;
