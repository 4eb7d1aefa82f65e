//! Records: one BSON document each, with the body's fields at the top level and the rest under
//! `_fold`.
//!
//! ```text
//! { _id: "cart-42", status: "Opened", …, _fold: { mark: '{"0":17}' } }
//! ```
//!
//! `_fold` has these fields:
//!
//! - `mark` and `parked` are the JSON text of the two parts of a header. Each value has exactly one
//!   text, so comparing texts compares headers.
//! - `gone` means that readers see nothing.
//! - `bare` means that the body is not an object and is stored in `value`.
//! - `json` is the body's text, if its fields alone do not reproduce it.
//! - `by` is the number of the write that the record comes from. It exists only without
//!   transactions.

use bson::raw::cstr;
use bson::{RawBson, RawDocument, RawDocumentBuf};
use leftfold::documents::{Header, Record};
use leftfold::{DocumentId, Json};

use crate::encoding::body::{self, Encoded};
use crate::error::Failure;

/// The largest record. A guarded write of it, as one command, stays below the server's limit.
pub(crate) const MAX_RECORD_BYTES: usize = (16 << 20) - (64 << 10);
/// The most bytes that a header, an id and the rest of `_fold` need.
pub(crate) const MAX_HEADER_BYTES: usize = 32 << 10;
/// The field reserved for Leftfold.
const FOLD: &str = "_fold";

/// Returns the texts of a header: the mark and the parked state.
pub(crate) fn guard(header: &Header) -> Result<(String, Option<String>), Failure> {
    let parked = header.parked.as_ref().map(serde_json::to_string).transpose();
    let parked = parked.map_err(|error| Failure::damaged(error.to_string()))?;
    Ok((header.mark.to_string(), parked))
}

/// Encodes a record, with the number of its write if writes must be distinguishable. A body that is
/// too large as BSON is stored as text only.
pub(crate) fn encode(record: &Record, by: Option<i64>) -> Result<RawDocumentBuf, Failure> {
    let mut body = record.body.as_ref().map(|body| body::encode(body, FOLD)).transpose()?;
    let (mark, parked) = guard(&record.header)?;
    let mut fold = RawDocumentBuf::new();
    fold.append(cstr!("mark"), mark);
    if let Some(parked) = parked {
        fold.append(cstr!("parked"), parked);
    }
    match (&mut body, &record.body) {
        (Some(body), Some(text)) => {
            let beside = if body.exact { 0 } else { text.as_str().len() };
            if body.elements.len() + beside + MAX_HEADER_BYTES > MAX_RECORD_BYTES {
                *body = Encoded { elements: Vec::new(), bare: false, exact: false };
            }
            if body.bare {
                fold.append(cstr!("bare"), true);
            }
            if !body.exact {
                fold.append(cstr!("json"), text.as_str());
            }
        }
        _ => fold.append(cstr!("gone"), true),
    }
    if let Some(by) = by {
        fold.append(cstr!("by"), by);
    }
    let mut ends = RawDocumentBuf::new();
    ends.append(cstr!("_id"), record.id.as_str());
    let between = ends.as_bytes().len() - 1;
    ends.append(cstr!("_fold"), fold);
    let Some(body) = body else { return Ok(ends) };
    let mut bytes = ends.into_bytes();
    bytes.splice(between..between, body.elements);
    let length = i32::try_from(bytes.len()).map_err(|error| Failure::damaged(error.to_string()))?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    Ok(RawDocumentBuf::from_bytes(bytes)?)
}

/// Decodes a stored record.
pub(crate) fn decode(stored: &RawDocument) -> Result<Record, Failure> {
    let id = stored.get_str("_id")?;
    let fold = fold(stored)?;
    let body = match (fold.get("gone")?, fold.get("json")?) {
        (Some(_), _) => None,
        (None, Some(text)) => text.as_str().map(Json::stored),
        (None, None) => Some(body::decode(stored, FOLD, fold.get("bare")?.is_some())?),
    };
    Ok(Record { id: DocumentId::stored(id), header: header(fold)?, body })
}

/// Decodes the id and the header of a record, and the number of its write.
pub(crate) fn decode_header(stored: &RawDocument) -> Result<(DocumentId, (Header, Option<i64>)), Failure> {
    let fold = fold(stored)?;
    let by = fold.get("by")?.and_then(bson::RawBsonRef::as_i64);
    Ok((DocumentId::stored(stored.get_str("_id")?), (header(fold)?, by)))
}

/// Returns the `_fold` field of a document.
fn fold(stored: &RawDocument) -> Result<&RawDocument, Failure> {
    stored.get("_fold")?.and_then(bson::RawBsonRef::as_document).ok_or_else(|| {
        let id = stored.get("_id").ok().flatten().map(RawBson::from);
        Failure::new(
            leftfold::Kind::Format,
            "move it elsewhere: only Leftfold may write to this collection",
            format!("the document with _id {id:?} was not written by Leftfold: it has no _fold"),
        )
    })
}

fn header(fold: &RawDocument) -> Result<Header, Failure> {
    let read = |error: serde_json::Error| Failure::damaged(error.to_string());
    let mark = serde_json::from_str(fold.get_str("mark")?).map_err(read)?;
    let parked = match fold.get("parked")?.and_then(bson::RawBsonRef::as_str) {
        Some(text) => Some(serde_json::from_str(text).map_err(read)?),
        None => None,
    };
    Ok(Header { mark, parked })
}
