//! Leftfold keeps read models right: it folds events into documents, each exactly once and in order.

pub mod documents;
mod encode;
mod env;
mod error;
mod event;
pub mod fold;
mod json;
pub mod log;
mod mark;
mod retry;
#[cfg(feature = "testing")]
pub mod testing;

pub use documents::{Collection, Documents, Store};
pub use env::{Env, System};
pub use error::{Error, Invalid, Kind, Result};
pub use event::{
    DocumentId, Event, EventId, EventKind, MAX_NAME_BYTES, NewEvent, Partition, Position, Revision, StreamId,
    Token,
};
pub use fold::{Projection, Route};
pub use json::Json;
pub use log::{Append, AppendError, Appended, Expected, Log};
pub use mark::{Lane, Mark, Verdict};
pub use retry::Backoff;
