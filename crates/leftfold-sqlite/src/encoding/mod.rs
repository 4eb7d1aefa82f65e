//! Conversions between values and their columns.

mod json;
mod number;

pub(crate) use self::json::{json, text};
pub(crate) use self::number::{limit, number, signed, time};
