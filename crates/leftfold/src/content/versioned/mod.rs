//! Documents of one type, each guarded by its content.

mod handle;

pub use handle::{Current, Versioned, WriteAnswer};
