//! Documents of one type, each guarded by its content.
//!
//! | module | purpose |
//! | --- | --- |
//! | `handle` | opening a collection, and reading documents |
//! | `write` | inserts, updates and deletes |
//! | `judge` | the decision about a write from the store's result |
//! | `change` | changes by a function: read, change, write |
//! | `operate` | operations on documents |
//! | `batches` | several store calls in flight, for large writes |
//! | `retry` | retries while the store is unavailable, and the doubt that they leave |

mod batches;
mod change;
mod handle;
mod judge;
mod operate;
mod retry;
mod write;

pub use handle::{Current, Versioned};
pub use write::WriteAnswer;
