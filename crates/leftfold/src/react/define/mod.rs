//! Reactions as users define them: documents or events, triggers, handlers and policies.

mod reaction;
mod retry;

pub use reaction::{Cleanup, Draft, HandlerError, Reaction};
pub(crate) use reaction::{Definition, Wanted};
pub(crate) use retry::later;
pub use retry::{Every, Retry};
