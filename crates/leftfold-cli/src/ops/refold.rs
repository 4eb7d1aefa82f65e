//! `leftfold refold`: folds a document again from its first event.

use leftfold::fold::Mended;
use leftfold::{Kind, ReadError};
use serde_json::{Value, json};

use super::audit;
use crate::args;
use crate::exit::{Exit, Failure};
use crate::models::Models;
use crate::output::Out;
use crate::place::Place;

pub(crate) async fn refold<P: Place>(
    place: &P,
    models: &Models,
    args: &args::Refold,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let args::Document { collection, id, .. } = &args.document;
    models.known(collection)?;
    let app = models.open_existing(place).await?;
    let before = match app.get_as::<Value>(collection, id).await {
        // A damaged document, or one of another shape, is the reason to refold.
        Err(ReadError::Store(error)) if error.kind() == Kind::Format => Some(Value::Null),
        before => before?,
    };
    if let Mended::StillFailing(error) = app.refold(collection, id).await? {
        let message = format!("refolding {id:?} in {collection}: {error}; it stays as it was");
        return Err(Failure::new(Exit::No, message));
    }
    let after = app.get_as::<Value>(collection, id).await?;
    if before.is_none() && after.is_none() {
        let message = format!("refolding {id:?} in {collection}: no event makes such a document");
        return Err(Failure::new(Exit::No, message));
    }
    let changed = before != after;
    let (target, reason) = (format!("{collection}: {id}"), args.why.reason.as_deref());
    let outcome = if changed { "changed" } else { "it is what it was" };
    audit::record(app.store(), "refold", &target, reason, outcome).await?;
    out.value(&json!({ "collection": collection, "id": id, "changed": changed, "document": after }))?;
    let what = match (&after, changed) {
        (_, false) => "it is what it was",
        (Some(_), true) => "it was not what its events make of it, and is now",
        (None, true) => "its events leave nothing of it, so it is gone",
    };
    out.line(format_args!("{id} in {collection} is folded anew: {what}"))?;
    Ok(Exit::Done)
}
