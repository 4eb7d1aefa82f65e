//! `leftfold refold`: folds a document again from its first event.

use leftfold::fold::RepairOutcome;
use leftfold::{Kind, ReadError};
use leftfold_terminal::{Exit, Failure, Location, Out};
use serde_json::{Value, json};

use super::audit;
use crate::args::{DocumentArgs, RefoldArgs};
use crate::projections::{Projections, select_from};

pub(crate) async fn refold<L: Location>(
    location: &L,
    projections: &Projections,
    args: &RefoldArgs,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let DocumentArgs { collection, id } = &args.document;
    let app = projections.open_with_code(location, "refold").await?;
    select_from(&app, Some(collection))?;
    let failed = |why: &str| Err(Failure::new(Exit::No, format!("refolding {id:?} in {collection}: {why}")));
    let before = match app.get_as::<Value>(collection, id).await {
        // A damaged document, or one of another shape, is the reason to refold.
        Err(ReadError::Store(error)) if error.kind() == Kind::Format => Some(Value::Null),
        before => before?,
    };
    if let RepairOutcome::StillFailing(error) = app.refold(collection, id).await? {
        return failed(&format!("{error}; the document stays as it was"));
    }
    let after = app.get_as::<Value>(collection, id).await?;
    if before.is_none() && after.is_none() {
        return failed("no event makes such a document");
    }
    let changed = before != after;
    let (target, reason) = (format!("{collection}: {id}"), args.reason.reason.as_deref());
    let outcome = if changed { "changed" } else { "unchanged" };
    audit::record(app.store(), "refold", &target, reason, outcome).await?;
    out.value(&json!({ "collection": collection, "id": id, "changed": changed, "document": after }))?;
    let result = match (&after, changed) {
        (_, false) => "it is unchanged",
        (Some(_), true) => "it differed from its events, and equals them now",
        (None, true) => "its events make no document, so it is deleted",
    };
    out.line(format_args!("{id} in {collection} is folded again: {result}"))?;
    Ok(Exit::Done)
}
