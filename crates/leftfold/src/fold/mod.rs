//! Fold: the log becomes documents, by a pure function per projection.

mod decode;
mod projection;

pub use projection::{Error, Ids, Projection, Route};
