//! The cases about generations: a collection that is rebuilt beside the live one, and replaces it.

mod rebuild;

pub use rebuild::*;
