//! The cases about held, conflicting and rejected deliveries.

mod ingest;

pub use ingest::*;
