//! Rebuilds of documents beside the live ones.
//!
//! A rebuild can take long, so no request waits for it. One request starts it, it runs in this
//! process, and other requests return its progress. If this process ends, the same request resumes
//! the rebuild.

mod operations;
mod registry;
mod work;

pub(super) use self::operations::operations;
pub(crate) use self::registry::Rebuilds;
pub(crate) use self::work::take_up;
