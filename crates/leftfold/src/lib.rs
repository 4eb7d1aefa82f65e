//! Leftfold keeps read models correct.
//!
//! It folds events into documents, each event exactly once and in order, although events are
//! delivered twice, late or out of order, although stores return stale data and workers crash. It
//! then runs side effects when documents change.
//!
//! ```text
//! deliveries ─▶ sequence ─▶ log ─▶ fold ─▶ documents ─▶ react ─▶ effects
//!                  │                 │          │
//!                held             parked      readers
//! ```
//!
//! # Example
//!
//! A [`Projection`] is a pure function from a document and an event to the next document. An
//! [`App`] appends events, folds them in the background, and reads documents.
//!
//! ```
//! use leftfold::{Event, Leftfold, Memory, Projection, fold};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! #[serde(rename_all = "kebab-case")]
//! enum CartEvent {
//!     CartOpened { client: String },
//!     ItemAdded { quantity: u32 },
//! }
//!
//! #[derive(Debug, PartialEq, Serialize, Deserialize)]
//! struct Cart {
//!     client: String,
//!     items: u32,
//! }
//!
//! struct Carts;
//!
//! impl Projection for Carts {
//!     type Event = CartEvent;
//!     type Document = Cart;
//!
//!     fn name(&self) -> &str {
//!         "carts"
//!     }
//!
//!     fn fold(&self, cart: Option<Cart>, event: &Event<CartEvent>) -> Result<Option<Cart>, fold::Error> {
//!         Ok(match (cart, &event.data) {
//!             (None, CartEvent::CartOpened { client }) => Some(Cart { client: client.clone(), items: 0 }),
//!             (Some(cart), CartEvent::ItemAdded { quantity }) => {
//!                 Some(Cart { items: cart.items + quantity, ..cart })
//!             }
//!             _ => return Err("this event does not fit the state of the cart".into()),
//!         })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let app = Leftfold::on(Memory::new(1)).projection(Carts).start().await?;
//! let events = [CartEvent::CartOpened { client: "ann".into() }, CartEvent::ItemAdded { quantity: 2 }];
//! let bookmark = app.append("cart-42", events).await?;
//!
//! let cart = app.get(Carts, "cart-42").at_least(bookmark).await?;
//! assert_eq!(cart, Some(Cart { client: "ann".into(), items: 2 }));
//! app.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! [`Memory`] is for tests. Durable stores are the crates `leftfold-sqlite` and `leftfold-mongodb`.
//!
//! # Modules
//!
//! | Module         | Contents                                                                  |
//! |----------------|---------------------------------------------------------------------------|
//! | [`sequence`]   | From deliveries to the log: order, duplicates, gaps, conflicts            |
//! | [`log`]        | Streams and partitions of events                                          |
//! | [`fold`]       | Projections, and the workers that run them                                |
//! | [`documents`]  | Documents in a store, with their marks; guarded writes by hand            |
//! | [`rebuild`]    | A new generation of documents beside the live one                         |
//! | [`react`]      | Tasks and handlers that run when documents change                         |
//! | [`content`]    | Documents without events, guarded by the hash of their content            |
//! | [`inspect`]    | Status, explanations, verification, and the doctor; all read-only         |
//! | [`store`]      | The in-memory store, and parts that stores share                          |
//! | [`revision`]   | Revision numbers for producers that have none                             |
//! | [`audit`]      | The record of repairs by operators                                        |
//! | [`budget`]     | One memory budget for everything in a process                             |
//!
//! `docs/glossary.md` in the repository defines the words.
//!
//! # Features
//!
//! - `testing`: the module `testing`, with `spec` for projections and the suite that every store
//!   must pass.

#![warn(clippy::iter_over_hash_type)]

mod app;
pub mod audit;
mod backoff;
pub mod budget;
pub mod content;
pub mod documents;
mod env;
mod error;
mod event;
pub mod fold;
pub mod inspect;
mod json;
pub mod log;
mod mark;
#[doc(hidden)]
pub mod planted;
pub mod react;
pub mod rebuild;
pub mod revision;
pub mod sequence;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use app::{App, Leftfold, Ready, Unit};
pub use backoff::Backoff;
pub use documents::guarded::{Guarded, Rule};
pub use documents::{Collection, Documents, Get, ReadError};
pub use env::{Env, System};
pub use error::{Error, Invalid, Kind, Result};
pub use event::{
    Bookmark, DocumentId, Event, EventId, EventKind, MAX_NAME_BYTES, NewEvent, Partition, Position, Revision,
    StreamId,
};
pub use fold::{Projection, Route};
pub use json::{Json, JsonFault};
pub use log::{Append, AppendError, Appended, Expected, Log};
pub use mark::{Lane, Mark, Verdict};
pub use rebuild::Rebuild;
pub use sequence::{Delivery, IngestAnswer, Policy, Sequencer, Sequences};
pub use store::{Memory, SplitStore, Store};
