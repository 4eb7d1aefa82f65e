//! Conflicts: events that contradict the log, until an operator decides.

use axum::extract::State;
use jiff::Timestamp;
use leftfold::log::Entry;
use leftfold::sequence::{Conflict, Resolution};
use leftfold::{Env as _, EventId, EventKind, Json, Revision, StreamId, System};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::audit::{self, Actor, Reason};
use super::extract::{Content, Named, Params};
use super::{Answer, Operation, Paged, fill, json_of, page_limit};
use crate::access::Scope;
use crate::idempotency::AfterUnknown;
use crate::problem::Problem;
use crate::{Backend, Shared};

pub(super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    let reason = json!({
        "type": "object", "additionalProperties": false, "required": ["reason"],
        "properties": { "reason": { "type": "string" } },
    });
    vec![
        Operation::get("/conflicts", "listConflicts", "List unresolved conflicts", conflicts::<S>)
            .scope(Scope::Operate)
            .query("after", "The `after` of the previous page", "string")
            .query("limit", "The maximum number of items: 100 by default, at most 1000", "integer"),
        Operation::post(
            "/conflicts/{id}/keep",
            "keepStored",
            "Resolve a conflict: keep the stored event",
            keep::<S>,
        )
        .scope(Scope::Operate)
        .idempotent(AfterUnknown::Repeat)
        .body("application/json", reason)
        .fails(404, "The conflict does not exist"),
        Operation::post(
            "/conflicts/{id}/discard",
            "discardConflict",
            "Resolve a conflict: delete the conflicting event, as if it had never arrived",
            discard::<S>,
        )
        .scope(Scope::Operate)
        .idempotent(AfterUnknown::Repeat)
        .optional_body("application/json", audit::reason())
        .fails(404, "The conflict does not exist"),
    ]
}

async fn conflicts<S: Backend>(State(shared): State<Shared<S>>, Params(params): Params<Paged>) -> Answer {
    let most = page_limit(params.limit)?;
    let _turn = shared.turn().await;
    let after = match &params.after {
        None => None,
        Some(id) => Some(found(&shared, id).await?),
    };
    let read = |after, most| shared.app.store().conflicts(after, most);
    let size = |conflict: &Conflict| {
        let metadata = conflict.entry.metadata.as_ref().map_or(0, |metadata| metadata.as_str().len());
        conflict.entry.data.as_str().len() + metadata + 1_000
    };
    let (conflicts, more) = fill(most, after, read, Clone::clone, size).await?;
    let after = conflicts.last().filter(|_| more).map(Conflict::id);
    json_of(&ConflictPage { conflicts: conflicts.iter().map(Shown::from).collect(), after, more })
}

/// A page of conflicts. The data of their events is sent as it was received.
#[derive(Serialize)]
struct ConflictPage<'c> {
    conflicts: Vec<Shown<'c>>,
    after: Option<String>,
    more: bool,
}

#[derive(Serialize)]
struct Shown<'c> {
    id: String,
    stream: &'c StreamId,
    revision: Revision,
    why: Value,
    since: Timestamp,
    event: ShownEvent<'c>,
}

#[derive(Serialize)]
struct ShownEvent<'c> {
    id: &'c EventId,
    r#type: &'c EventKind,
    time: Timestamp,
    data: &'c Json,
    metadata: Option<&'c Json>,
}

impl<'c> From<&'c Conflict> for Shown<'c> {
    fn from(conflict: &'c Conflict) -> Self {
        let Entry { id, kind, time, data, metadata } = &*conflict.entry;
        Self {
            id: conflict.id(),
            stream: &conflict.stream,
            revision: conflict.revision,
            why: json!(conflict.why),
            since: conflict.since,
            event: ShownEvent { id, r#type: kind, time: *time, data, metadata: metadata.as_ref() },
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keep {
    reason: String,
}

async fn keep<S: Backend>(
    State(shared): State<Shared<S>>,
    actor: Actor,
    Named(id): Named<String>,
    content: Content,
) -> Answer {
    let Keep { reason } = content.json()?;
    let resolution = Resolution { reason: reason.clone(), at: System.now() };
    resolve(&shared, &actor, &id, Some(resolution), Some(&reason)).await
}

async fn discard<S: Backend>(
    State(shared): State<Shared<S>>,
    actor: Actor,
    Named(id): Named<String>,
    Reason(reason): Reason,
) -> Answer {
    resolve(&shared, &actor, &id, None, reason.as_deref()).await
}

async fn resolve<S: Backend>(
    shared: &Shared<S>,
    actor: &Actor,
    id: &str,
    resolution: Option<Resolution>,
    reason: Option<&str>,
) -> Answer {
    let conflict = found(shared, id).await?;
    let (action, outcome) = match &resolution {
        Some(_) => ("keep-stored", "kept the stored event"),
        None => ("discard-conflict", "deleted"),
    };
    let is_done = shared.app.store().resolve(&conflict, resolution).await?;
    if is_done {
        let target = format!("{}@{}", conflict.stream, conflict.revision);
        actor.did(shared, action, &target, reason, outcome).await;
    }
    json_of(&json!({ "id": id, "resolved": is_done }))
}

/// Returns the conflict with an id.
async fn found<S: Backend>(shared: &Shared<S>, id: &str) -> Result<Conflict, Problem> {
    // Their events can be large.
    const STEP: usize = 8;
    let mut after = None;
    loop {
        let conflicts = shared.app.store().conflicts(after, STEP).await?;
        let is_over = conflicts.len() < STEP;
        after = conflicts.last().cloned();
        if let Some(found) = conflicts.into_iter().find(|conflict| conflict.id() == id) {
            return Ok(found);
        }
        if is_over {
            return Err(Problem::missing(format!("conflict {id} does not exist")));
        }
    }
}
