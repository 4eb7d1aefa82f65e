//! The documents.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The name of the collection.
pub(super) const SHEETS: &str = "sheets";
/// A document that is never deleted.
pub(super) const KEPT: &str = "kept";
/// All documents.
pub(super) const ALL: [&str; 3] = [KEPT, "a", "b"];

/// A document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Sheet {
    /// The last write of the whole document.
    pub(super) by: String,
    /// The sum of the operations' amounts. `pushed` has their numbers.
    pub(super) count: i64,
    pub(super) pushed: Vec<u64>,
    /// The marks of the changes.
    pub(super) marks: Vec<String>,
    /// Values that operations add and remove.
    pub(super) tags: Vec<u64>,
    pub(super) more: More,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct More {
    last: u64,
}

/// Returns a document as the ledger stores it.
pub(super) fn value(sheet: &Sheet) -> Option<Value> {
    serde_json::to_value(sheet).ok()
}
