//! Reactions as users define them: documents or events, triggers, handlers and policies.
//!
//! | module | purpose |
//! | --- | --- |
//! | `reaction` | a reaction, and the ways to begin one |
//! | `draft` | its settings |
//! | `complete` | adds the handler |
//! | `trigger` | evaluates a document: the filter, the condition, the watched values |
//! | `definition` | the complete definition, for planners and runners |
//! | `retry`, `every`, `cleanup` | policies |

mod cleanup;
mod complete;
mod definition;
mod draft;
mod every;
mod reaction;
mod retry;
mod trigger;

pub use cleanup::Cleanup;
pub(crate) use definition::{Definition, Wanted};
pub use draft::Draft;
pub use every::Every;
pub use reaction::Reaction;
pub use retry::Retry;
