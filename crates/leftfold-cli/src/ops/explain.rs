//! `leftfold explain`: every event that made a document, and what each changed; or why it is not there.

use std::io;

use leftfold::fold::{Absence, Change, Effect, Explained};
use leftfold::{App, Sequences, Store};
use serde_json::Value;

use crate::args;
use crate::exit::{Exit, Failure};
use crate::models::Models;
use crate::output::{Out, brief, shorten, thousands};
use crate::place::Place;

pub(crate) async fn explain<P: Place>(
    place: &P,
    models: &Models,
    args: &args::Explain,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let args::Document { collection, id, .. } = &args.document;
    models.known(collection)?;
    let app = models.open_existing(place).await?;
    if args.why_not {
        return why_not(&app, collection, id, out).await;
    }
    let (mut written, mut document) = (Ok(()), None);
    let tell = |step: Explained| {
        if written.is_ok() {
            written = tell(&step, out);
        }
        document = step.document;
    };
    let found = match &args.at {
        None => app.explain(collection, id, tell).await?,
        Some(moment) => app.explain_until(collection, id, moment, tell).await?,
    };
    written?;
    out.end_of_list()?;
    if !found {
        let message = format!(
            "explaining {id:?} in {collection}: there is no such document and never was; --why-not says why"
        );
        return Err(Failure::new(Exit::No, message));
    }
    if let Some(moment) = &args.at {
        match document {
            Some(document) => out.line(format_args!("\nas of {moment}:\n{document:#}"))?,
            None => out.line(format_args!("\nas of {moment} there was no document"))?,
        }
    }
    Ok(Exit::Done)
}

/// Says why a document is not there. Ends well if there are reasons; that it is there is none.
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
            for Change { path, before, after } in changes.iter().flat_map(fields) {
                out.line(format_args!(
                    "            {path}: {} → {}",
                    brief(before.as_ref()),
                    brief(after.as_ref())
                ))?;
            }
            if step.document.is_none() { out.line("            the document is gone") } else { Ok(()) }
        }
        Effect::Failed(error) => out.line(format_args!("            failed: {}", shorten(error, 200))),
        Effect::Waiting => out.line("            waits"),
    }
}

/// A document that came or went as a whole is shown field by field.
fn fields(change: &Change) -> Vec<Change> {
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
        Change { path, before, after }
    };
    fields.into_iter().map(field).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_came_or_went_as_a_whole_is_shown_by_field() {
        let whole = |before, after| Change { path: String::new(), before, after };
        let came = fields(&whole(None, Some(json!({"a": 1, "b": {"c": 2}}))));
        let a = Change { path: "a".into(), before: None, after: Some(json!(1)) };
        let b = Change { path: "b".into(), before: None, after: Some(json!({"c": 2})) };
        assert_eq!(came, [a, b]);
        let went = fields(&whole(Some(json!({"a": 1})), None));
        assert_eq!(went, [Change { path: "a".into(), before: Some(json!(1)), after: None }]);
        let other = whole(Some(json!(1)), Some(json!({"a": 1})));
        assert_eq!(fields(&other), [other]);
    }
}
