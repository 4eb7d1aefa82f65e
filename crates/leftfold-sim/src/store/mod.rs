//! A store that fails as real stores do, when the dice say so. Without faults it is the in-memory
//! store.
//!
//! Each operation takes time and may fail. A write may also happen late, in part, or not at all,
//! while its outcome is unknown to the caller.

mod calls;
mod changes;
mod commits;
mod contents;
mod documents;
mod handle;
mod leases;
mod log;
mod sabotage;
mod sequence;
mod shared;
mod tasks;
mod transactions;

pub use calls::LATE;
pub use changes::SimFeed;
pub use handle::SimStore;
pub(crate) use shared::MIDNIGHT;
pub use shared::Shared;
