//! The cases about changes of documents, tasks, leases and wake-ups.

mod tasks;

pub use tasks::*;
