//! Operations as updates that the server carries out by itself.
//!
//! The filter holds an operation's conditions: the document does not remember the operation, and
//! its fields have the required types. An operation that can't be applied changes nothing, and
//! concurrent operations on one document do not conflict.

use std::collections::BTreeMap;

use bson::raw::CString;
use bson::{Bson, Document, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, doc, rawdoc};
use leftfold::DocumentId;
use leftfold::content::{Amount, ContentGuard, FieldOperation, Operation, REMEMBERED};

use super::read::key;
use super::record::{binary, value};
use super::together::Change;
use crate::error::Failure;

/// The amount from which a floating-point sum may overflow, which servers turn into infinity.
const HUGE: f64 = 1e290;

/// Builds the statement that applies an operation. Returns `None` if no update is equivalent.
pub(super) fn statement(
    key: &RawBson,
    operation: &Operation,
    guard: &ContentGuard,
) -> Result<Option<RawDocumentBuf>, Failure> {
    let id = operation.id().get().cast_signed();
    let (mut needs, mut does) = (BTreeMap::new(), BTreeMap::<_, Document>::new());
    for (path, step) in operation.steps() {
        for (dot, _) in path.match_indices('.') {
            // MongoDB's `object` type also matches an array that contains objects.
            needs.insert(&path[..dot], doc! { "$type": "object", "$not": { "$type": "array" } });
        }
        let Some((operator, operand)) = update(step) else { return Ok(None) };
        if let Some(need) = need(step) {
            needs.insert(path, need);
        }
        does.entry(operator).or_default().insert(path, operand);
    }
    let most = i32::try_from(REMEMBERED).unwrap_or(i32::MAX);
    let remember = doc! { "$each": [id], "$sort": 1, "$slice": -most };
    does.entry("$push").or_default().insert("_content.operations", remember);
    does.entry("$set").or_default().insert("_content.guard", binary(guard));
    does.entry("$max").or_default().insert("_content.last", id);

    let mut filter = doc! {
        "_id": { "$eq": Bson::try_from(key.clone())? },
        "_content.json": { "$exists": false },
        // The field must exist: Leftfold did not write documents without it.
        "_content.operations": { "$type": "array", "$ne": id },
        "$or": [
            { format!("_content.operations.{}", REMEMBERED - 1): { "$exists": false } },
            { "_content.operations.0": { "$lt": id } },
        ],
    };
    filter.extend(needs.into_iter().map(|(path, need)| (path.to_owned(), need.into())));
    let does: Document =
        does.into_iter().map(|(operator, fields)| (operator.to_owned(), fields.into())).collect();
    Ok(Some(RawDocumentBuf::try_from(&doc! { "q": filter, "u": does, "hint": { "_id": 1 } })?))
}

/// An operation that only increments top-level numbers.
pub(super) struct Increase<'o> {
    id: &'o DocumentId,
    key: RawBson,
    number: i64,
    amounts: RawDocumentBuf,
    guard: &'o ContentGuard,
}

impl<'o> Increase<'o> {
    /// Returns `None` if the operation does anything else.
    pub(super) fn new(id: &'o DocumentId, operation: &Operation, guard: &'o ContentGuard) -> Option<Self> {
        let mut amounts = RawDocumentBuf::new();
        for (path, step) in operation.steps() {
            let FieldOperation::Increment(Amount::Whole(amount)) = step else { return None };
            // A field inside an object needs more checks.
            if path.contains('.') {
                return None;
            }
            let name = CString::try_from(path.to_owned()).ok()?;
            match i32::try_from(*amount) {
                Ok(narrow) => amounts.append(&name, narrow),
                Err(_) => amounts.append(&name, *amount),
            }
        }
        Some(Self { id, key: key(id)?, number: operation.id().get().cast_signed(), amounts, guard })
    }

    /// Returns the fields of a document that these operations need to read.
    pub(super) fn fields(all: &[Self]) -> Result<Document, Failure> {
        let mut fields = doc! { "_content.guard": 1, "_content.last": 1 };
        for amounts in all.iter().map(|increase| &increase.amounts) {
            for amount in amounts {
                fields.insert(amount?.0.as_str(), 1);
            }
        }
        Ok(fields)
    }
}

impl Change for Increase<'_> {
    fn id(&self) -> &DocumentId {
        self.id
    }

    fn key(&self) -> &RawBson {
        &self.key
    }

    fn update(&self, found: &RawDocument) -> Result<Option<RawDocumentBuf>, Failure> {
        let Ok(content) = found.get_document("_content") else { return Ok(None) };
        // The operation must be newer than all remembered ones: that needs fewer fields.
        let is_newest = content.get_binary("guard").is_ok()
            && content.get_i64("last").is_ok_and(|last| last < self.number);
        for amount in &self.amounts {
            let value = found.get(amount?.0)?;
            if !matches!(value, Some(RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_))) {
                return Ok(None);
            }
        }
        let most = i32::try_from(REMEMBERED).unwrap_or(i32::MAX);
        Ok(is_newest.then(|| {
            rawdoc! {
                "$inc": self.amounts.clone(),
                "$push": { "_content.operations": { "$each": [self.number], "$slice": -most } },
                "$set": { "_content.guard": binary(self.guard), "_content.last": self.number },
            }
        }))
    }
}

/// Returns the type that a field must have. The number types also match an array that contains
/// numbers.
fn need(step: &FieldOperation) -> Option<Document> {
    match step {
        FieldOperation::Increment(_) => {
            Some(doc! { "$type": ["int", "long", "double"], "$not": { "$type": "array" } })
        }
        FieldOperation::Push(_) | FieldOperation::Pull(_) => Some(doc! { "$type": "array" }),
        FieldOperation::Set(_) => None,
    }
}

fn update(step: &FieldOperation) -> Option<(&'static str, Bson)> {
    Some(match step {
        FieldOperation::Increment(Amount::Whole(amount)) => {
            // A 32-bit amount keeps a 32-bit number narrow.
            ("$inc", i32::try_from(*amount).map_or(Bson::Int64(*amount), Bson::Int32))
        }
        FieldOperation::Increment(Amount::Double(amount)) if amount.abs() > HUGE => return None,
        FieldOperation::Increment(Amount::Double(amount)) => ("$inc", Bson::Double(*amount)),
        FieldOperation::Push(json) => ("$push", doc! { "$each": [value(json)?] }.into()),
        FieldOperation::Pull(json) => ("$pullAll", vec![value(json)?].into()),
        FieldOperation::Set(json) => ("$set", value(json)?),
    })
}
