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
//! [`Script`] describes what a module may export and what it can't do. [`Workers`] contain scripts
//! in processes that can be killed.

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
