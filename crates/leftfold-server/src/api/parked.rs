//! Parked documents and streams: listing and retrying them.

use axum::extract::State;
use leftfold::documents::Parked;
use leftfold::fold::RepairOutcome;
use leftfold::{DocumentId, StreamId, Unit};
use serde::Deserialize;
use serde_json::{Value, json};

use super::audit::{Actor, REASON};
use super::extract::{Content, MAX_WAIT, Named, Params, known};
use super::{Answer, Operation, Paged, fill, json_of, page_limit};
use crate::access::Scope;
use crate::idempotency::AfterUnknown;
use crate::problem::Problem;
use crate::{Backend, Shared};

pub(super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    vec![
        Operation::get(
            "/collections/{collection}/parked",
            "listParked",
            "List parked documents and streams",
            parked::<S>,
        )
        .scope(Scope::Operate)
        .query("after", "The `after` of the previous page", "string")
        .query("limit", "The maximum number of items: 100 by default, at most 1000", "integer"),
        Operation::post(
            "/collections/{collection}/parked/retry",
            "retryParked",
            "Retry parked documents and streams",
            retry::<S>,
        )
        .scope(Scope::Operate)
        .idempotent(AfterUnknown::Repeat)
        .body(
            "application/json",
            json!({
                "type": "object", "additionalProperties": false,
                "description": "The documents and streams to retry; all that are parked by default.",
                "properties": {
                    "documents": { "type": "array", "items": { "type": "string" } },
                    "streams": { "type": "array", "items": { "type": "string" } },
                    "dry_run": { "type": "boolean" },
                    "reason": { "type": "string", "description": REASON },
                },
            }),
        ),
    ]
}

async fn parked<S: Backend>(
    State(shared): State<Shared<S>>,
    Named(collection): Named<String>,
    Params(params): Params<Paged>,
) -> Answer {
    known(&shared, &collection)?;
    let after = params.after.as_deref().map(unit).transpose()?;
    let _turn = shared.turn().await;
    let (app, name) = (&shared.app, collection.as_str());
    let read = |after: Option<Unit>, most| async move { app.parked(name, after.as_ref(), most).await };
    let key = |(unit, _): &(Unit, Parked)| unit.clone();
    let size = |(_, parked): &(Unit, Parked)| parked.error.len() + 1_000;
    let (parked, more) = fill(page_limit(params.limit)?, after, read, key, size).await?;
    let after = parked.last().filter(|_| more).map(|(unit, _)| match unit {
        Unit::Document(id) => format!("document:{id}"),
        Unit::Stream(stream) => format!("stream:{stream}"),
    });
    let parked: Vec<_> =
        parked.into_iter().map(|(unit, parked)| json!({ "unit": unit, "parked": parked })).collect();
    json_of(&json!({ "parked": parked, "after": after, "more": more }))
}

/// Parses the unit that a page of parked units ended with.
fn unit(text: &str) -> Result<Unit, Problem> {
    match text.split_once(':') {
        Some(("document", id)) => Ok(Unit::Document(DocumentId::new(id)?)),
        Some(("stream", stream)) => Ok(Unit::Stream(StreamId::new(stream)?)),
        _ => Err(Problem::invalid(format!(
            "after: {text:?} is not a cursor of this list; use the `after` of the previous page"
        ))),
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Retry {
    documents: Vec<String>,
    streams: Vec<String>,
    dry_run: bool,
    reason: Option<String>,
}

async fn retry<S: Backend>(
    State(shared): State<Shared<S>>,
    actor: Actor,
    Named(collection): Named<String>,
    content: Content,
) -> Answer {
    known(&shared, &collection)?;
    let Retry { documents, streams, dry_run, reason } = content.json_or_default()?;
    let named: Vec<_> = streams.iter().chain(&documents).map(String::as_str).collect();
    let target =
        if named.is_empty() { collection.clone() } else { format!("{collection}: {}", named.join(", ")) };
    let mut outcomes = Vec::new();
    let record = |unit: &Unit, outcome: &RepairOutcome| {
        let mut shown = outcome_of(outcome);
        shown["unit"] = json!(unit);
        outcomes.push(shown);
    };
    let documents = documents.into_iter().map(|id| Ok(Unit::Document(DocumentId::new(id)?)));
    let streams = streams.into_iter().map(|stream| Ok(Unit::Stream(StreamId::new(stream)?)));
    let units = streams.chain(documents).collect::<Result<Vec<_>, Problem>>()?;
    let mending = async {
        if units.is_empty() {
            shared.app.retry_all(&collection, dry_run, record).await
        } else {
            shared.app.retry_some(&collection, units, dry_run, record).await
        }
    };
    let ended = tokio::time::timeout(MAX_WAIT, mending).await;
    // Record the repairs that were made, even if a later one failed.
    if !dry_run && !outcomes.is_empty() {
        let repaired = outcomes.iter().filter(|outcome| outcome["outcome"] == "repaired").count();
        let outcome = format!("{repaired} of {} repaired", outcomes.len());
        actor.did(&shared, "retry-parked", &target, reason.as_deref(), &outcome).await;
    }
    match ended {
        Ok(done) => done?,
        Err(_) => {
            return Err(Problem::unavailable(
                "the retry took longer than a minute; send the request again for the rest",
            )
            .retry_after(1));
        }
    }
    json_of(&json!({ "outcomes": outcomes, "dry_run": dry_run }))
}

/// Returns the outcome of a retry or a refold.
pub(super) fn outcome_of(outcome: &RepairOutcome) -> Value {
    match outcome {
        RepairOutcome::Repaired => json!({ "outcome": "repaired" }),
        RepairOutcome::StillFailing(error) => json!({ "outcome": "still-failing", "error": error }),
        RepairOutcome::NotParked => json!({ "outcome": "not-parked" }),
    }
}
