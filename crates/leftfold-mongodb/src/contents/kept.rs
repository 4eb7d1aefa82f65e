//! Documents as they are kept: the body's fields at the top level, and everything else under `_content`.
//!
//! ```text
//! { _id: "shoes", price: 4900, …, _content: { guard: BinData(0, …), by: 42, operations: [7, 9], last: 9 } }
//! ```
//!
//! `guard` is what the next write is guarded by, `by` the call that wrote the content last, and `operations` the ids of those that are remembered,
//! the lowest first; `last` is the highest, where operations can be carried out by the server. `json` is the body's text where its fields alone would not give back the same content; most documents have none.

use bson::raw::cstr;
use bson::spec::BinarySubtype;
use bson::{
    Binary, Bson, Document, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, doc, rawdoc,
};
use leftfold::Json;
use leftfold::content::{Counted, Guard, Ids, Stored, canonical};

use super::ids;
use crate::body::{self, Encoded, Style};
use crate::error::Failure;
use crate::record::{MAX_HEADER_BYTES, MAX_RECORD_BYTES};

const CONTENT: &str = "_content";

/// A document as it was found.
pub(super) struct Kept {
    pub(super) stored: Stored,
    /// Which call has written the content.
    pub(super) by: i64,
}

/// A body as it is kept.
pub(super) struct Body {
    fields: RawDocumentBuf,
    json: Option<String>,
}

impl Body {
    /// One that is too large in BSON is kept as text alone.
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

    /// The whole document.
    pub(super) fn encode(
        &self,
        key: &RawBson,
        guard: &Guard,
        by: i64,
        operations: &Ids,
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

    /// The update that makes a document this, and leaves it the operations that it remembers.
    pub(super) fn update(&self, guard: &Guard, by: i64) -> RawArrayBuf {
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

/// A document of these elements.
fn document(elements: Vec<u8>) -> Result<RawDocumentBuf, Failure> {
    let length = i32::try_from(elements.len() + 5).map_err(|error| Failure::damaged(error.to_string()))?;
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend(elements);
    bytes.push(0);
    Ok(RawDocumentBuf::from_bytes(bytes)?)
}

/// Whether both are the same content.
fn is_same(one: &Json, other: &Json) -> bool {
    let text = |json| canonical(json, &Counted::All).ok();
    text(one).is_some_and(|one| text(other) == Some(one))
}

/// A value as it is kept within a document. `None` if it could not be given back.
pub(super) fn value(json: &Json) -> Option<Bson> {
    let value = body::value(json.as_str())?;
    let raw = RawBson::try_from(value.clone()).ok()?;
    let back = Json::stored(body::text(raw.as_raw_bson_ref(), Style::Stored).ok()?);
    (back == *json || is_same(&back, json)).then_some(value)
}

/// A document as it was kept.
pub(super) fn decode(stored: &RawDocument) -> Result<Kept, Failure> {
    let id = stored.get("_id")?.ok_or_else(|| Failure::damaged("a document has no _id"))?;
    let Some(content) = content(stored)? else {
        return Err(Failure::new(
            leftfold::Kind::Format,
            "it is left as it is: move it elsewhere, or name another collection, as only Leftfold may write there",
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

/// A guard as it is kept.
pub(super) fn binary(guard: &Guard) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: guard.as_bytes().to_owned() }
}

fn guard(content: &RawDocument) -> Result<Guard, Failure> {
    Ok(Guard::stored(content.get_binary("guard")?.bytes))
}

fn remembered(content: &RawDocument) -> Result<Ids, Failure> {
    let mut operations = Vec::new();
    for operation in content.get_array("operations")? {
        let number =
            operation?.as_i64().ok_or_else(|| Failure::damaged("the id of an operation is no number"))?;
        operations.push(number.unsigned_abs());
    }
    Ok(Ids::stored(operations))
}

/// The fields that [`header`] needs.
pub(super) fn header_fields() -> Document {
    doc! { "_content.guard": 1, "_content.by": 1, "_content.operations": 1 }
}

/// The guard of a document and the operations that it remembers, if it is kept like this.
pub(super) fn header(stored: &RawDocument) -> Result<Option<(Guard, Ids)>, Failure> {
    let Some(content) = content(stored)? else { return Ok(None) };
    Ok(Some((guard(content)?, remembered(content)?)))
}

/// The body of a document, if it is kept like this.
pub(crate) fn body(stored: &RawDocument) -> Result<Option<Json>, Failure> {
    content(stored)?.map(|content| body_of(stored, content)).transpose()
}

fn body_of(stored: &RawDocument, content: &RawDocument) -> Result<Json, Failure> {
    match content.get("json")?.and_then(RawBsonRef::as_str) {
        Some(text) => Ok(Json::stored(text)),
        None => body::decode(stored, CONTENT, false),
    }
}

/// What is ours in a document, if it is kept like this: others may have a field of that name.
fn content(stored: &RawDocument) -> Result<Option<&RawDocument>, Failure> {
    let Some(content) = stored.get(CONTENT)?.and_then(RawBsonRef::as_document) else { return Ok(None) };
    let is_ours =
        guard(content).is_ok() && content.get_i64("by").is_ok() && content.get_array("operations").is_ok();
    Ok(is_ours.then_some(content))
}
