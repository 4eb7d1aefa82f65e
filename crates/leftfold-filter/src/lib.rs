//! MongoDB's query language as a library: a [`Filter`] selects documents, without a database.
//!
//! A filter selects exactly the documents that MongoDB would select, because values have its types
//! and its order. So one condition works on any store, and as a query on MongoDB. The filter itself
//! is data: it can come from a configuration file or a request.
//!
//! ```
//! use leftfold_filter::{Filter, Value};
//!
//! let filter: Filter = r#"{"status": "open", "items.count": {"$gte": 2}}"#.parse()?;
//! let cart: Value = r#"{"status": "open", "items": [{"count": 1}, {"count": 3}]}"#.parse()?;
//! assert!(filter.matches(&cart, "2026-11-16T08:00:00Z".parse()?));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | Type        | Purpose                                                             |
//! |-------------|---------------------------------------------------------------------|
//! | [`Filter`]  | A condition on documents                                            |
//! | [`Value`]   | A document or a part of it, from and to JSON and extended JSON      |
//! | [`Decimal`] | A decimal number, as a value                                        |
//! | [`Paths`]   | A list of dotted paths: a projection of a document, or its opposite |
//!
//! The feature `bson` converts values from and to BSON.

#![warn(clippy::iter_over_hash_type)]

#[cfg(feature = "bson")]
mod bson;
mod condition;
mod decimal;
mod error;
mod filter;
mod json;
mod offset;
mod parse;
mod path;
mod paths;
mod pattern;
#[cfg(test)]
mod tests;
mod value;

pub use decimal::Decimal;
pub use error::Error;
pub use filter::Filter;
pub use paths::Paths;
pub use value::{Fields, Value};
