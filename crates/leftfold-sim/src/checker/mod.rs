//! The invariants of folding, checked by code that shares nothing with the engine's fold.
//!
//! - I1: At every instant a document is the naive fold of its events up to its mark, except for
//!   events of a parked stream. In the end it is the fold of all its events.
//! - I2: Marks and checkpoints never decrease, and a folded event stays folded.
//! - I3: A checkpoint passes no event that its documents have neither folded nor parked.
//! - I6: An acknowledged event is in the log once, at the position of its bookmark.
//! - I8: A failing event stops only its own document or stream. Nothing else is left out, and
//!   everything becomes correct once the code is fixed.
//! - I10: Within a time limit after the last fault everything is folded and nothing is parked.
//! - I11: The responses that clients got are true.

mod collections;
mod end;
mod fold;
mod log;
mod progress;
mod state;
mod writes;

pub use state::Checker;
