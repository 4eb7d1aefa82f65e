//! Operations as updates that the server makes by itself.
//!
//! The filter has what must hold for an operation: the document does not remember it, and its fields are what the operation needs. So what can't be applied
//! changes nothing, and operations of many at once on the same document are not in each other's way.

use std::collections::BTreeMap;

use bson::raw::CString;
use bson::{Bson, Document, RawBson, RawDocumentBuf, doc, rawdoc};
use leftfold::content::{Amount, Guard, Operation, REMEMBERED, Step};

use super::kept::value;
use crate::error::Failure;

/// From here on a sum can be too large for a floating-point number, of which servers make one that is infinite.
const HUGE: f64 = 1e290;

/// The statement that applies an operation. `None` if no update does the same as the operation.
pub(super) fn statement(
    key: &RawBson,
    operation: &Operation,
    guard: &Guard,
) -> Result<Option<RawDocumentBuf>, Failure> {
    let id = operation.id().get().cast_signed();
    let (mut needs, mut does) = (BTreeMap::new(), BTreeMap::<_, Document>::new());
    for (path, step) in operation.steps() {
        for (dot, _) in path.match_indices('.') {
            // An array that has objects in it passes for one, too.
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
    does.entry("$set").or_default().insert("_content.guard", guard.as_str());
    does.entry("$max").or_default().insert("_content.last", id);

    let mut filter = doc! {
        "_id": { "$eq": Bson::try_from(key.clone())? },
        "_content.json": { "$exists": false },
        // It must be there: other documents are not ours.
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

/// The statement that applies an operation which increases numbers, if it is newer than all that the document remembers: then there is less to look at.
pub(super) fn newest(key: &RawBson, operation: &Operation, guard: &Guard) -> Option<RawDocumentBuf> {
    let id = operation.id().get().cast_signed();
    let mut filter = rawdoc! { "_id": { "$eq": key.clone() }, "_content.last": { "$lt": id }, "_content.guard": { "$exists": true } };
    let mut amounts = RawDocumentBuf::new();
    for (path, step) in operation.steps() {
        let Step::Increment(Amount::Whole(amount)) = step else { return None };
        // Of a field in an object more must be known.
        if path.contains('.') {
            return None;
        }
        let name = CString::try_from(path.to_owned()).ok()?;
        filter.append(&name, rawdoc! { "$type": ["int", "long", "double"], "$not": { "$type": "array" } });
        match i32::try_from(*amount) {
            Ok(narrow) => amounts.append(&name, narrow),
            Err(_) => amounts.append(&name, *amount),
        }
    }
    let most = i32::try_from(REMEMBERED).unwrap_or(i32::MAX);
    let does = rawdoc! {
        "$inc": amounts,
        "$push": { "_content.operations": { "$each": [id], "$slice": -most } },
        "$set": { "_content.guard": guard.as_str(), "_content.last": id },
    };
    Some(rawdoc! { "q": filter, "u": does, "hint": { "_id": 1 } })
}

/// What a field must be. An array that has numbers in it passes for one, too.
fn need(step: &Step) -> Option<Document> {
    match step {
        Step::Increment(_) => Some(doc! { "$type": ["int", "long", "double"], "$not": { "$type": "array" } }),
        Step::Push(_) | Step::Pull(_) => Some(doc! { "$type": "array" }),
        Step::Set(_) => None,
    }
}

fn update(step: &Step) -> Option<(&'static str, Bson)> {
    Some(match step {
        Step::Increment(Amount::Whole(amount)) => {
            // A narrow one leaves a narrow number as it is.
            ("$inc", i32::try_from(*amount).map_or(Bson::Int64(*amount), Bson::Int32))
        }
        Step::Increment(Amount::Double(amount)) if amount.abs() > HUGE => return None,
        Step::Increment(Amount::Double(amount)) => ("$inc", Bson::Double(*amount)),
        Step::Push(json) => ("$push", doc! { "$each": [value(json)?] }.into()),
        Step::Pull(json) => ("$pullAll", vec![value(json)?].into()),
        Step::Set(json) => ("$set", value(json)?),
    })
}
