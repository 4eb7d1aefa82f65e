//! Values as JSON text.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Failure;

/// Serializes a value to its unique JSON text.
pub(crate) fn text(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::damaged(error.to_string()))
}

/// Decodes JSON text.
pub(crate) fn json<T: DeserializeOwned>(text: &str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::damaged(error.to_string()))
}
