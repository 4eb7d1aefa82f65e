//! Fold: the log becomes documents, by a pure function per projection.

mod decode;
mod projection;

#[cfg(feature = "testing")]
pub(crate) use decode::{Decoded, decode};
pub use projection::{Error, Ids, Projection, Route};
