//! Reacting to documents: which ones, by filters, and to what changes of them, by watched paths.
//!
//! [`Filter`] is a condition in MongoDB's query language, [`Paths`] a list of the fields to watch. Both are data, both
//! work on a [`Value`], and so mean the same on every store.

mod filter;
mod value;
mod watch;

pub use filter::Filter;
pub use value::{Decimal, Fields, Value};
pub use watch::Paths;
