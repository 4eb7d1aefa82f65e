//! The connections to the file: one writes, a few read.

pub(crate) mod identity;
pub(crate) mod readers;
pub(crate) mod writer;
