//! Documents that are written without events.

mod operations;

pub use operations::*;
