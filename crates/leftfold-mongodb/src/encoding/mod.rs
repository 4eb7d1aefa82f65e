//! Conversions between Leftfold's values and BSON.

pub(crate) mod body;
pub(crate) mod ids;
mod json;
mod number;
pub mod value;

pub(crate) use self::json::{json, text};
pub(crate) use self::number::{limit, signed, time};
