//! Events, the streams they belong to, and the numbers that order them.

mod encode;
mod names;

pub(crate) use names::to_the_microsecond;
pub use names::*;
