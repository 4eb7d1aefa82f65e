//! Conversions between Leftfold's values and BSON.

pub(crate) mod body;
mod elements;
pub(crate) mod ids;
mod json;
pub(crate) mod notation;
mod number;

pub(crate) use self::json::{json, text};
pub(crate) use self::number::{limit, signed, time};
