//! Alerts: who watches a product gets a mail when its price drops below their limit, one for each drop.
//!
//! ```text
//! quotes ──▶ sequence ──▶ log ──▶ Prices ──▶ show-price ──▶ watches ──▶ mail ──▶ the mail server
//!            (latest)             (folded)   (a reaction)   (no events) (a reaction)
//! ```
//!
//! | piece | its idea |
//! | --- | --- |
//! | [`Quote`], [`Prices`] | events that carry the full state and a revision of the clock: they may come twice and out of order, the latest counts |
//! | [`Watch`], [`Watches`] | documents without events: each change is a pure function, guarded by the price's revision, so that it can be repeated |
//! | [`Alerts`] | two reactions, one after the other: the first shows prices to those who watch, the second sends mails |
//! | [`mail`] | a client that can send a mail twice, and a server that knows a mail it has seen by its Message-ID |
//!
//! A price that was over before anybody looked is not told: prices are states, and only the last one of a product is sure to be seen.
//! `cargo run -p price-alert --example alerts` tells a short story of it, and `tests/alerts.rs` long ones.

mod alerts;
pub mod mail;
mod price;
mod watch;

pub use alerts::Alerts;
pub use price::{Price, PriceEvent, Prices, Quote};
pub use watch::{Limit, Watch, Watches};

/// The guide's code about prices is compiled and run with this crate's documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/revision-numbers.md")]
struct RevisionNumbers;

/// So is that of deliveries,
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/re-sequencing.md")]
struct ReSequencing;

/// and that of documents without events.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/idempotent-writes.md")]
struct IdempotentWrites;
