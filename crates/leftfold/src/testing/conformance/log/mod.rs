//! The cases about the log.

mod append;

pub use append::*;
