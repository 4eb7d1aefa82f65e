//! The stored form of documents: a row with the id, the body, the guard of the next write, and the
//! ids of the remembered operations.

use leftfold::content::{ContentGuard, OperationIds, Stored};
use leftfold::{DocumentId, Json};
use rusqlite::Row;

use crate::error::Failure;

/// Decodes a row with the columns `body`, `guard` and `operations`.
pub(super) fn decode(id: DocumentId, row: &Row<'_>) -> Result<Stored, Failure> {
    Ok(Stored {
        id,
        body: Json::stored(row.get_ref(0)?.as_str()?),
        guard: ContentGuard::stored(row.get_ref(1)?.as_blob()?),
        operations: remembered(row.get_ref(2)?.as_blob()?),
    })
}

/// Decodes the ids of remembered operations: eight bytes each, in order.
pub(super) fn remembered(bytes: &[u8]) -> OperationIds {
    let ids =
        bytes.chunks_exact(8).map(|id| id.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
    OperationIds::stored(ids)
}

/// Encodes the ids of remembered operations.
pub(super) fn bytes(operations: &OperationIds) -> Vec<u8> {
    operations.iter().flat_map(|id| id.get().to_be_bytes()).collect()
}
