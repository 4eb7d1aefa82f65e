//! Operations: changes that do not depend on the document's state. Each has an id, so that a
//! repeated operation is applied once.
//!
//! | module | purpose |
//! | --- | --- |
//! | `steps` | an operation, and its steps on fields |
//! | `ids` | the ids of operations, and those that a document remembers |
//! | `apply` | the effect on a document |
//! | `splice` | the fast path: increments in the document's text |

mod apply;
mod ids;
mod splice;
mod steps;
#[cfg(test)]
mod tests;

pub use ids::{OperationId, OperationIds, REMEMBERED, Recalled};
pub use steps::{Amount, FieldOperation, Operation};
