//! The stored form of a document: a row with its id, body, mark and parked state.

use leftfold::documents::{Header, Record};
use leftfold::{DocumentId, Json};
use rusqlite::Row;
use rusqlite::types::ValueRef;

use crate::encoding::json;
use crate::error::Failure;

/// Decodes a row.
pub(super) fn decode(row: &Row<'_>) -> Result<Record, Failure> {
    let parked = match row.get_ref(3)?.as_str_or_null()? {
        Some(_) => Some(json(row, 3)?),
        None => None,
    };
    Ok(Record {
        id: DocumentId::stored(row.get_ref(0)?.as_str()?),
        header: Header { mark: json(row, 2)?, parked },
        body: body(row.get_ref(1)?)?,
    })
}

/// Decodes a stored body. A body that is not valid text must not prevent others from being read.
fn body(value: ValueRef<'_>) -> Result<Option<Json>, Failure> {
    Ok(value.as_bytes_or_null()?.map(|bytes| match str::from_utf8(bytes) {
        Ok(text) => Json::stored(text),
        Err(_) => Json::damaged(bytes),
    }))
}
