//! A small shop: the events of its carts, and four read models folded from them.
//!
//! Start with [`CartEvent`], then [`CartDetails`]; each of the others adds one idea.
//!
//! | read model | from | to | its idea |
//! | --- | --- | --- | --- |
//! | [`CartDetails`] | one cart | a document per cart | merging, errors, deletes |
//! | [`ClientSummary`] | many carts | a document per client | routing by content |
//! | [`OpenCarts`] | many carts | a document per client with an open cart | creating and deleting |
//! | [`DailyTotals`] | all carts | a document per day, and one of all days | several documents per event |
//!
//! `tests/specs.rs` shows the documents that each read model folds from given events. [`workload`]
//! generates any number of events for demonstrations and benchmarks.

mod cart_details;
mod client_summary;
mod daily_totals;
mod open_carts;
pub mod workload;

pub use cart_details::{Cart, CartDetails, Item, Status};
pub use client_summary::{Client, ClientSummary, Visit};
pub use daily_totals::{DailyTotals, Sale, Totals};
pub use open_carts::{Open, OpenCarts};
use serde::{Deserialize, Serialize};

/// An event of a shopping cart. Each cart is a stream; prices are in cents.
///
/// The variant is the event's type, such as `product-item-added`, and its fields are the event's
/// data: `{"productId":"shoes","name":"Shoes","quantity":2,"unitPrice":4900}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum CartEvent {
    ShoppingCartOpened { client_id: String },
    ProductItemAdded { product_id: String, name: String, quantity: u32, unit_price: u32 },
    ProductItemRemoved { product_id: String, quantity: u32 },
    ShoppingCartConfirmed { client_id: String, total: u64 },
    ShoppingCartCanceled { client_id: String },
}

/// Compiles and runs the README's code with this crate's documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Does the same for the guide pages about carts and orders. The other pages are in `price-alert`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/guarded-projections.md")]
struct GuardedProjections;

/// Does the same for the last pages of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/reactions.md")]
struct Reactions;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/rebuilding.md")]
struct Rebuilding;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/mongodb.md")]
struct MongoDb;
