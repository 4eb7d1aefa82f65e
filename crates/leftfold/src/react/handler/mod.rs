//! The side of a handler: its context, and its access to the store.

mod context;

pub use context::{Context, Lock, NotCurrent};
pub(crate) use context::{Hands, Inner};
