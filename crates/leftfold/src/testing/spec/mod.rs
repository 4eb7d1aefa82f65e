//! Specifications of projections: given these events, then these documents.
//!
//! | module | purpose |
//! | --- | --- |
//! | `given` | a projection with the events it is given |
//! | `checks` | the expected documents and failures |

#![expect(clippy::missing_panics_doc, reason = "checks in tests panic where they fail")]
#![expect(clippy::return_self_not_must_use, reason = "a check may be the last thing one says")]

mod checks;
mod given;
#[cfg(test)]
mod tests;

pub use given::{Spec, spec};
