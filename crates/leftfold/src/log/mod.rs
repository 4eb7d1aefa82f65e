//! The log: each stream in order, each event once.

mod append;

pub use append::*;
