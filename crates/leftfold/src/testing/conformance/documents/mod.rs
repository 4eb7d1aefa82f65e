//! The cases about documents.

mod guards;

pub use guards::*;
