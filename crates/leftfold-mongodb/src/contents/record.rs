//! The stored form of documents: the body's fields at the top level, and the rest under `_content`.
//!
//! ```text
//! { _id: "shoes", price: 4900, …, _content: { guard: BinData(0, …), by: 42, operations: [7, 9], last: 9 } }
//! ```
//!
//! `_content` has these fields:
//!
//! - `guard` guards the next write.
//! - `by` is the call that last wrote the content.
//! - `operations` are the ids of the remembered operations, in ascending order.
//! - `last` is the highest operation id. It exists only if the server can carry out operations.
//! - `json` is the body's text, if its fields alone do not reproduce the content. Most documents
//!   have none.

use bson::raw::cstr;
use bson::spec::BinarySubtype;
use bson::{
    Binary, Bson, Document, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, doc, rawdoc,
};
use leftfold::Json;
use leftfold::content::{ContentGuard, Counted, OperationIds, Stored, canonical};

use crate::documents::record::{MAX_HEADER_BYTES, MAX_RECORD_BYTES};
use crate::encoding::body::{self, Encoded};
use crate::encoding::ids;
use crate::encoding::notation::{self, Style};
use crate::error::Failure;

const CONTENT: &str = "_content";

/// A document that was read.
pub(super) struct Kept {
    pub(super) stored: Stored,
    /// The number of the call that wrote the content.
    pub(super) by: i64,
}

/// A body in its stored form.
pub(super) struct Body {
    fields: RawDocumentBuf,
    json: Option<String>,
}

impl Body {
    /// Encodes a body. One that is too large as BSON is stored as text only.
    pub(super) fn of(body: &Json) -> Result<Self, Failure> {
        let Encoded { elements, bare, exact } = body::encode(body, CONTENT)?;
        let fields = document(elements)?;
        let is_same = !bare && (exact || is_same(&body::decode(&fields, CONTENT, false)?, body));
        let json = (!is_same).then(|| body.as_str().to_owned());
        let beside = json.as_ref().map_or(0, String::len);
        if fields.as_bytes().len() + beside + MAX_HEADER_BYTES > MAX_RECORD_BYTES {
            return Ok(Self { fields: RawDocumentBuf::new(), json: Some(body.as_str().to_owned()) });
        }
        Ok(Self { fields, json })
    }

    /// Encodes the whole document.
    pub(super) fn encode(
        &self,
        key: &RawBson,
        guard: &ContentGuard,
        by: i64,
        operations: &OperationIds,
    ) -> Result<RawDocumentBuf, Failure> {
        let mut all = RawArrayBuf::new();
        for operation in operations.iter() {
            all.push(operation.get().cast_signed());
        }
        let mut content = rawdoc! { "guard": binary(guard), "by": by, "operations": all };
        if let Some(json) = &self.json {
            content.append(cstr!("json"), json.as_str());
        } else {
            let last = operations.iter().last().map_or(0, |last| last.get().cast_signed());
            content.append(cstr!("last"), last);
        }
        let mut whole = RawDocumentBuf::new();
        whole.append(cstr!("_id"), key.clone());
        for field in &self.fields {
            let (name, value) = field?;
            whole.append(name, value);
        }
        whole.append(cstr!("_content"), content);
        Ok(whole)
    }

    /// Returns the update that replaces a document with this body and keeps its remembered
    /// operations.
    pub(super) fn update(&self, guard: &ContentGuard, by: i64) -> RawArrayBuf {
        let mut content = rawdoc! {
            "guard": { "$literal": binary(guard) },
            "by": { "$literal": by },
            "operations": "$_content.operations",
        };
        match &self.json {
            Some(json) => content.append(cstr!("json"), rawdoc! { "$literal": json.as_str() }),
            None => content
                .append(cstr!("last"), rawdoc! { "$ifNull": [{ "$last": "$_content.operations" }, 0_i64] }),
        }
        let fields = rawdoc! { "$literal": self.fields.clone() };
        let rest = rawdoc! { "_id": "$_id", "_content": content };
        let mut pipeline = RawArrayBuf::new();
        pipeline.push(rawdoc! { "$replaceWith": { "$mergeObjects": [fields, rest] } });
        pipeline
    }
}

/// Builds a document from its elements.
fn document(elements: Vec<u8>) -> Result<RawDocumentBuf, Failure> {
    let length = i32::try_from(elements.len() + 5).map_err(|error| Failure::damaged(error.to_string()))?;
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend(elements);
    bytes.push(0);
    Ok(RawDocumentBuf::from_bytes(bytes)?)
}

/// Returns whether both are the same content.
fn is_same(one: &Json, other: &Json) -> bool {
    let text = |json| canonical(json, &Counted::All).ok();
    text(one).is_some_and(|one| text(other) == Some(one))
}

/// Converts a value to its stored form. Returns `None` if it could not be read back unchanged.
pub(super) fn value(json: &Json) -> Option<Bson> {
    let value = notation::value(json.as_str())?;
    let raw = RawBson::try_from(value.clone()).ok()?;
    let back = Json::stored(notation::text(raw.as_raw_bson_ref(), Style::Stored).ok()?);
    (back == *json || is_same(&back, json)).then_some(value)
}

/// Decodes a stored document.
pub(super) fn decode(stored: &RawDocument) -> Result<Kept, Failure> {
    let id = stored.get("_id")?.ok_or_else(|| Failure::damaged("a document has no _id"))?;
    let Some(content) = content(stored)? else {
        return Err(Failure::new(
            leftfold::Kind::Format,
            "move it elsewhere, or name another collection: only Leftfold may write to this one",
            format!(
                "the document with _id {:?} was not written by Leftfold: it has no _content",
                RawBson::from(id)
            ),
        ));
    };
    let stored = Stored {
        id: ids::of(id)?,
        body: body_of(stored, content)?,
        guard: guard(content)?,
        operations: remembered(content)?,
    };
    Ok(Kept { stored, by: content.get_i64("by")? })
}

/// Converts a guard to its stored form.
pub(super) fn binary(guard: &ContentGuard) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: guard.as_bytes().to_owned() }
}

fn guard(content: &RawDocument) -> Result<ContentGuard, Failure> {
    Ok(ContentGuard::stored(content.get_binary("guard")?.bytes))
}

fn remembered(content: &RawDocument) -> Result<OperationIds, Failure> {
    let mut operations = Vec::new();
    for operation in content.get_array("operations")? {
        let number =
            operation?.as_i64().ok_or_else(|| Failure::damaged("the id of an operation is not a number"))?;
        operations.push(number.unsigned_abs());
    }
    Ok(OperationIds::stored(operations))
}

/// Returns the fields that [`header`] needs.
pub(super) fn header_fields() -> Document {
    doc! { "_content.guard": 1, "_content.by": 1, "_content.operations": 1 }
}

/// Returns the guard of a document and its remembered operations, if Leftfold wrote it.
pub(super) fn header(stored: &RawDocument) -> Result<Option<(ContentGuard, OperationIds)>, Failure> {
    let Some(content) = content(stored)? else { return Ok(None) };
    Ok(Some((guard(content)?, remembered(content)?)))
}

/// Returns the body of a document, if Leftfold wrote it.
pub(crate) fn body(stored: &RawDocument) -> Result<Option<Json>, Failure> {
    content(stored)?.map(|content| body_of(stored, content)).transpose()
}

fn body_of(stored: &RawDocument, content: &RawDocument) -> Result<Json, Failure> {
    match content.get("json")?.and_then(RawBsonRef::as_str) {
        Some(text) => Ok(Json::stored(text)),
        None => body::decode(stored, CONTENT, false),
    }
}

/// Returns the `_content` field, if Leftfold wrote it: other documents may have a field of that
/// name.
fn content(stored: &RawDocument) -> Result<Option<&RawDocument>, Failure> {
    let Some(content) = stored.get(CONTENT)?.and_then(RawBsonRef::as_document) else { return Ok(None) };
    let is_ours =
        guard(content).is_ok() && content.get_i64("by").is_ok() && content.get_array("operations").is_ok();
    Ok(is_ours.then_some(content))
}
