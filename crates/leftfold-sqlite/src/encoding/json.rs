//! Values as JSON text.

use rusqlite::Row;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Failure;

/// Serializes a value to its unique JSON text.
pub(crate) fn text(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::refused("please report this", error.to_string()))
}

/// Decodes the JSON text in a column.
pub(crate) fn json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Result<T, Failure> {
    serde_json::from_str(row.get_ref(column)?.as_str()?).map_err(|error| Failure::damaged(error.to_string()))
}
