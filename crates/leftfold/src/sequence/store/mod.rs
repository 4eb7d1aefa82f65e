//! The sequencer's state in a store, beside the log.

mod sequences;

pub(crate) use sequences::bytes;
pub use sequences::*;
