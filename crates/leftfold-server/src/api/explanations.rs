//! Explanations of a document: the events that made it, and the reason why it is missing.

use axum::extract::State;
use leftfold::inspect::{AsOf, ExplanationCursor};
use leftfold::log::Limit;
use serde::Deserialize;
use serde_json::json;

use super::extract::{Named, Params, known};
use super::{Answer, Operation, PAGE_BYTES, json_of, page_limit};
use crate::access::Scope;
use crate::problem::Problem;
use crate::{Backend, Shared};

/// The description of `at`.
pub(super) const AT: &str = "Read an earlier state: at a revision of its stream, after an event \
                             (stream@revision), or at a time such as 2026-01-01T00:00:00Z";

pub(super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    vec![
        Operation::get(
            "/collections/{collection}/documents/{id}/explanation",
            "explainDocument",
            "List the events of a document and their changes, in pages; long values are shortened",
            explain::<S>,
        )
        .scope(Scope::Read)
        .query("at", AT, "string")
        .query("after", "The `next` of the previous page", "string")
        .query(
            "limit",
            "The maximum number of events: 100 by default, at most 1000. A page also ends at 1 MiB",
            "integer",
        )
        .fails(404, "No event was folded into this document yet"),
        Operation::get(
            "/collections/{collection}/documents/{id}/absence",
            "whyNotDocument",
            "Explain why a document is missing: events never came, wait, failed, were skipped or deleted it",
            why_not::<S>,
        )
        .scope(Scope::Read),
    ]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Explain {
    at: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

async fn explain<S: Backend>(
    State(shared): State<Shared<S>>,
    Named((collection, id)): Named<(String, String)>,
    Params(params): Params<Explain>,
) -> Answer {
    known(&shared, &collection)?;
    let at = params.at.as_deref().map(as_of).transpose()?;
    let after = params.after.as_deref().map(str::parse::<ExplanationCursor>).transpose()?;
    let limit = Limit { events: page_limit(params.limit)?, bytes: PAGE_BYTES };
    match shared.app.explain_part(&collection, &id, at.as_ref(), after.as_ref(), limit).await? {
        Some(explanation) => json_of(&explanation),
        None => Err(Problem::missing(format!(
            "no event was folded into document {id:?} of collection {collection}; GET its absence for the reason"
        ))),
    }
}

async fn why_not<S: Backend>(
    State(shared): State<Shared<S>>,
    Named((collection, id)): Named<(String, String)>,
) -> Answer {
    known(&shared, &collection)?;
    let reasons = shared.app.why_not(&collection, &id).await?;
    let reasons = reasons.iter().map(|reason| {
        let mut shown = json!(reason);
        shown["said"] = reason.to_string().into();
        shown
    });
    json_of(&json!({ "reasons": reasons.collect::<Vec<_>>() }))
}

/// Parses an `at`.
pub(super) fn as_of(text: &str) -> Result<AsOf, Problem> {
    text.parse().map_err(|invalid| Problem::invalid(format!("at: {invalid}")))
}
