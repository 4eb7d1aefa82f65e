//! A reactor: the reactions of a store, and this process's share of the work.

mod handle;
mod options;
pub(crate) mod shared;

pub use handle::{ReactorCounts, ReactorHandle};
pub use options::{Reactor, Registration};
