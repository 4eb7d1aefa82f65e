//! Stores: the in-memory store, a log and documents in separate stores, and the parts that stores
//! share.

pub mod clock;
mod delegate;
mod memory;
mod split;

pub use memory::Memory;
pub use split::SplitStore;

use crate::documents::Documents;
use crate::log::Append;

/// A store of both the log and the documents. Cloning returns another handle to the same store.
pub trait Store: Append + Documents + Clone {}

impl<S: Append + Documents + Clone> Store for S {}
