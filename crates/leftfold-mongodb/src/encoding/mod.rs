//! Conversions between BSON and the values of Leftfold.

pub(crate) mod body;
pub(crate) mod ids;
pub mod value;
