//! `leftfold explain`: every event that made a document and its changes, or why the document does
//! not exist.

use std::io;

use leftfold::inspect::{Absence, Effect, Explained, FieldChange};
use leftfold::{App, Sequences, Store};
use leftfold_terminal::{Exit, Failure, Location, Out, brief_difference, shorten, thousands};
use serde_json::Value;

use crate::args::{DocumentArgs, ExplainArgs};
use crate::projections::{Projections, select_from};

pub(crate) async fn explain<L: Location>(
    location: &L,
    projections: &Projections,
    args: &ExplainArgs,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let DocumentArgs { collection, id } = &args.document;
    let app = projections.open_with_code(location, "explain").await?;
    select_from(&app, Some(collection))?;
    if args.why_not {
        return why_not(&app, collection, id, out).await;
    }
    let mut written = Ok(());
    let tell = |step: Explained| {
        if written.is_ok() {
            written = tell(&step, out);
        }
    };
    let found = match &args.at {
        None => app.explain(collection, id, tell).await?,
        Some(moment) => app.explain_until(collection, id, moment, tell).await?,
    };
    written?;
    out.end_of_list()?;
    if !found {
        let reasons = app.why_not(collection, id).await?;
        let reasons = reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let message = format!("explaining {id:?} in {collection}: no event was folded into it: {reasons}");
        return Err(Failure::new(Exit::No, message));
    }
    if let Some(moment) = &args.at {
        match app.past(collection, id, moment).await? {
            Some(document) => out.line(format_args!("\nas of {moment}:\n{document:#}"))?,
            None => out.line(format_args!("\nas of {moment}: no document"))?,
        }
    }
    Ok(Exit::Done)
}

/// Prints why a document does not exist. Succeeds if there are reasons, and fails if the document
/// exists.
async fn why_not<S: Store + Sequences>(
    app: &App<S>,
    collection: &str,
    id: &str,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let reasons = app.why_not(collection, id).await?;
    for reason in &reasons {
        out.element(reason)?;
        out.line(reason)?;
    }
    out.end_of_list()?;
    Ok(if reasons == [Absence::There] { Exit::No } else { Exit::Done })
}

fn tell(step: &Explained, out: &mut Out) -> io::Result<()> {
    out.element(step)?;
    let event = &step.event;
    out.line(format_args!(
        "{:>10}  {}@{}  {}  {}",
        thousands(event.position.0),
        event.stream,
        event.revision,
        event.kind,
        event.time
    ))?;
    match &step.effect {
        Effect::Changed(changes) if changes.is_empty() => out.line("            nothing changed"),
        Effect::Changed(changes) => {
            for FieldChange { path, before, after, .. } in changes.iter().flat_map(fields) {
                let (before, after) = brief_difference(before.as_ref(), after.as_ref());
                out.line(format_args!("            {path}: {before} → {after}"))?;
            }
            if step.left_out > 0 {
                out.line(format_args!("            … and {} more changes", thousands(step.left_out)))?;
            }
            if step.size.is_none() { out.line("            the document is deleted") } else { Ok(()) }
        }
        Effect::Failed(error) => out.line(format_args!("            failed: {}", shorten(error, 200))),
        Effect::Waiting => out.line("            waits for the failed event"),
    }
}

/// Splits the creation or deletion of a whole document into its fields.
fn fields(change: &FieldChange) -> Vec<FieldChange> {
    let of = |value: &Option<Value>| match value {
        Some(Value::Object(fields)) => Some(fields.clone()),
        _ => None,
    };
    let whole = match (of(&change.before), of(&change.after)) {
        _ if !change.path.is_empty() => None,
        (None, Some(after)) if change.before.is_none() => Some((after, true)),
        (Some(before), None) if change.after.is_none() => Some((before, false)),
        _ => None,
    };
    let Some((fields, came)) = whole else { return vec![change.clone()] };
    let field = |(path, value)| {
        let (before, after) = if came { (None, Some(value)) } else { (Some(value), None) };
        FieldChange { path, before, after, cut: false }
    };
    fields.into_iter().map(field).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_came_or_went_as_a_whole_is_shown_by_field() {
        let whole = |before, after| FieldChange { path: String::new(), before, after, cut: false };
        let came = fields(&whole(None, Some(json!({"a": 1, "b": {"c": 2}}))));
        let a = FieldChange { path: "a".into(), before: None, after: Some(json!(1)), cut: false };
        let b = FieldChange { path: "b".into(), before: None, after: Some(json!({"c": 2})), cut: false };
        assert_eq!(came, [a, b]);
        let went = fields(&whole(Some(json!({"a": 1})), None));
        assert_eq!(went, [FieldChange { path: "a".into(), before: Some(json!(1)), after: None, cut: false }]);
        let other = whole(Some(json!(1)), Some(json!({"a": 1})));
        assert_eq!(fields(&other), [other]);
    }
}
