//! The decision: a pure function from the deliveries and the known state of a stream to its
//! changes.

mod line;
#[cfg(test)]
mod tests;

pub use line::{Judged, Judgement, Known, Room, judge};
