//! The side of a handler: its context, and its access to the store.
//!
//! | module | purpose |
//! | --- | --- |
//! | `context` | the document, the task, and the operations of a handler |
//! | `lock` | locks across processes |
//! | `error` | errors of handlers |
//! | `attempt` | one run of a task, shared by its handler and its runner |
//! | `access` | the store without its type |

mod access;
mod attempt;
mod context;
mod error;
mod lock;

pub(crate) use access::HandlerAccess;
pub(crate) use attempt::{Attempt, Report};
pub use context::Context;
pub use error::{HandlerError, NotCurrent};
pub use lock::Lock;
