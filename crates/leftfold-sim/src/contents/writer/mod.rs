//! A writer of documents without events. Several writers work on the same few documents.

mod actor;
mod change;
mod common;
mod operations;
mod puts;

pub(super) use actor::Writer;
pub(super) use common::Common;
