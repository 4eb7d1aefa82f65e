//! Leftfold keeps read models right: it folds events into documents, each exactly once and in order.

#![warn(clippy::iter_over_hash_type)]

mod apart;
mod app;
pub mod audit;
pub mod budget;
pub mod content;
pub mod doctor;
pub mod documents;
mod encode;
mod env;
mod error;
mod event;
pub mod fold;
pub mod guarded;
mod json;
pub mod log;
mod mark;
mod memory;
mod part;
#[doc(hidden)]
pub mod planted;
pub mod react;
mod read;
pub mod rebuild;
mod retry;
pub mod revision;
pub mod sequence;
pub mod steady;
#[cfg(feature = "testing")]
pub mod testing;

pub use apart::Apart;
pub use app::{App, Leftfold, Ready, Unit, Vitals};
pub use documents::{Collection, Documents, Store};
pub use env::{Env, System};
pub use error::{Error, Invalid, Kind, Result};
pub use event::{
    DocumentId, Event, EventId, EventKind, MAX_NAME_BYTES, NewEvent, Partition, Position, Revision, StreamId,
    Token,
};
pub use fold::{Projection, Route};
pub use guarded::{Guarded, Rule};
pub use json::{Json, JsonFault};
pub use log::{Append, AppendError, Appended, Expected, Log};
pub use mark::{Lane, Mark, Verdict};
pub use memory::Memory;
pub use read::{Get, ReadError};
pub use rebuild::Rebuild;
pub use retry::Backoff;
pub use sequence::{Answer, Delivery, Policy, Sequencer, Sequences};
