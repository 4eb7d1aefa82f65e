//! Price alerts: a customer who watches a product gets one mail each time its price drops below a
//! limit.
//!
//! ```text
//! quotes ──▶ sequence ──▶ log ──▶ Prices ──▶ show-price ──▶ watches ──▶ mail ──▶ the mail server
//!            (latest)             (folded)   (a reaction)   (no events) (a reaction)
//! ```
//!
//! - [`Quote`] and [`Prices`]: events that carry the full state and a clock revision. They may
//!   arrive twice and out of order; the latest wins.
//! - [`Watch`] and [`Watches`]: documents without events. Each change is a pure function, guarded
//!   by the price's revision, so it can be repeated.
//! - [`Alerts`]: two reactions in a chain. The first shows prices to watchers, the second sends
//!   mails.
//! - [`mail`]: a client that may send a mail twice, and a server that drops duplicates by
//!   Message-ID.
//!
//! Prices are states: only the last price of a product is sure to be seen, and a short-lived one
//! may cause no mail. `cargo run -p price-alert --example alerts` plays a short story,
//! `tests/alerts.rs` long ones.

mod alerts;
pub mod mail;
mod price;
mod watch;

pub use alerts::Alerts;
pub use price::{Price, PriceEvent, Prices, Quote};
pub use watch::{Limit, Watch, Watches};

/// Compiles and runs the guide's code about prices with this crate's documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/revision-numbers.md")]
struct RevisionNumbers;

/// Does the same for the page about deliveries.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/re-sequencing.md")]
struct ReSequencing;

/// Does the same for the page about documents without events.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/idempotent-writes.md")]
struct IdempotentWrites;
