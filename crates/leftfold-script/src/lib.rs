//! Projections in JavaScript: an object of functions by event type. Each function takes a document
//! and an event, and returns the next document.
//!
//! ```
//! use leftfold::testing::spec;
//! use leftfold::{Json, NewEvent};
//! use leftfold_script::{ScriptLimits, Script};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//!
//! let carts = Script::compile("carts", "carts.js", ScriptLimits::default(), r#"
//!     export default {
//!       "cart-opened": (_, event) => ({ client: event.data.client, items: 0 }),
//!       "item-added": (cart, event) => ({ ...cart, items: cart.items + event.data.quantity }),
//!       "cart-canceled": () => null,
//!     };
//! "#)?;
//! let event = |kind, data| NewEvent::new(kind, Json::parse(data)?);
//! spec(carts)
//!     .given_events("cart-42", [event("cart-opened", r#"{"client":"ann"}"#)?, event("item-added", r#"{"quantity":2}"#)?])
//!     .then("cart-42", serde_json::json!({ "client": "ann", "items": 2 }))
//!     .holds_under_chaos();
//! # Ok(()) }
//! ```
//!
//! A module may also export:
//!
//! - `route`, a function from an event to a document id, an array of ids, or `null`. Without it,
//!   the id is the event's stream.
//! - `version`, a number for people. The default is 1. Any change of the script's text requires a
//!   rebuild of the documents.
//!
//! An event is `{ id, stream, revision, type, time, data, metadata }`. Its time is a text such as
//! `2026-01-01T00:00:00Z`. A missing document is `undefined`, so a parameter can have a default. A
//! function returns the next document: an object, or `null` for none. Events of other types are
//! ignored.
//!
//! **Deterministic**: scripts have no clock, random numbers, local time zone, files or network, and
//! `Date.now()` and the like throw. Variables of a module would live from event to event, in one
//! process. [Contract checks](leftfold::testing::Spec::holds_under_chaos) find scripts that use
//! them.
//!
//! **Bounded**: a call that takes too much processor time or memory fails like one that throws.
//! Numbers are those of JavaScript: whole ones are exact up to 2⁵³. Larger ones are passed on
//! exactly, and a script that calculates with them fails.
//!
//! # Contained
//!
//! [`Script::compile`] runs a script in this process, where the engine enforces the limits as far
//! as it can. Some calls, such as `text.includes(…)` on long texts, are one step to the engine and
//! can't be interrupted. [`Script::compile_in`] runs a script in [worker processes](Workers) that
//! can be killed. The daemon does so.

mod bulk;
mod engine;
mod event;
mod fault;
mod identity;
mod limits;
mod pool;
mod process;
mod remote;
mod script;
mod wire;
mod worker;

pub use self::fault::ScriptFault;
pub use self::limits::ScriptLimits;
pub use self::pool::Workers;
pub use self::script::Script;
pub use self::worker::run_worker;
