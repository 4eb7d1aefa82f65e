//! The operations on rebuilds.

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use super::super::audit::{Actor, REASON, Reason, reason};
use super::super::extract::{Content, Named, known};
use super::super::{Answer, Operation, json_of, with_status};
use super::registry::Stage;
use super::work::work;
use crate::access::Scope;
use crate::idempotency::AfterUnknown;
use crate::problem::Problem;
use crate::{Backend, Shared};

pub(in super::super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    let how = json!({
        "type": "object", "additionalProperties": false,
        "properties": {
            "switch": { "type": "boolean", "description": "Switch when it is built; true by default" },
            "reason": { "type": "string", "description": REASON },
        },
    });
    vec![
        Operation::post(
            "/collections/{collection}/rebuild",
            "rebuildCollection",
            "Start or resume a rebuild of all documents beside the live ones, and switch to them",
            begin::<S>,
        )
        .scope(Scope::Operate)
        .idempotent(AfterUnknown::Repeat)
        .optional_body("application/json", how)
        .answers(202, "application/json", "The rebuild has started; GET returns its progress")
        .fails(409, "A rebuild or a switch is in progress"),
        Operation::get(
            "/collections/{collection}/rebuild",
            "getRebuild",
            "Show the progress of a rebuild, and the documents that it changes",
            get::<S>,
        )
        .scope(Scope::Operate)
        .fails(404, "This process has started no rebuild of the collection"),
        Operation::post(
            "/collections/{collection}/rebuild/cancel",
            "cancelRebuild",
            "Cancel the rebuild in progress, also one of another process",
            cancel::<S>,
        )
        .scope(Scope::Operate)
        .idempotent(AfterUnknown::Repeat)
        .optional_body("application/json", reason()),
        Operation::post(
            "/collections/{collection}/undo",
            "undoRebuild",
            "Switch back to the documents from before the last rebuild",
            undo::<S>,
        )
        .scope(Scope::Operate)
        .idempotent(AfterUnknown::Refuse)
        .optional_body("application/json", reason()),
    ]
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RebuildBody {
    switch: bool,
    reason: Option<String>,
}

impl Default for RebuildBody {
    fn default() -> Self {
        Self { switch: true, reason: None }
    }
}

async fn begin<S: Backend>(
    State(shared): State<Shared<S>>,
    actor: Actor,
    Named(collection): Named<String>,
    content: Content,
) -> Answer {
    known(&shared, &collection)?;
    let RebuildBody { switch, reason } = content.json_or_default()?;
    let last = shared.rebuilds.begin(&collection, switch, (actor.clone(), reason.clone()))?;
    // Use a separate task: the client may disconnect.
    let begun = tokio::spawn(async move {
        let rebuild = match shared.app.rebuild(&collection).await {
            Ok(rebuild) => rebuild,
            Err(error) => {
                shared.rebuilds.restore(&collection, last);
                return Err(error);
            }
        };
        let generation = rebuild.generation();
        shared.rebuilds.change(&collection, |state| state.generation = generation);
        let outcome = format!("started generation {generation}");
        actor.did(&shared, "rebuild", &collection, reason.as_deref(), &outcome).await;
        let answer = json!({ "collection": collection, "generation": generation, "state": Stage::Building });
        tokio::spawn(work(shared, collection, rebuild, switch));
        Ok(answer)
    });
    let answer = begun.await.map_err(|error| Problem::failed(format!("starting a rebuild: {error}")))??;
    Ok(with_status(json_of(&answer)?, StatusCode::ACCEPTED))
}

async fn get<S: Backend>(State(shared): State<Shared<S>>, Named(collection): Named<String>) -> Answer {
    known(&shared, &collection)?;
    match shared.rebuilds.get(&collection) {
        Some(state) => json_of(&state),
        None => Err(Problem::missing(format!(
            "this process started no rebuild of collection {collection}; see /status"
        ))),
    }
}

async fn cancel<S: Backend>(
    State(shared): State<Shared<S>>,
    actor: Actor,
    Named(collection): Named<String>,
    Reason(reason): Reason,
) -> Answer {
    known(&shared, &collection)?;
    let cancelled = shared.app.cancel_rebuild(&collection).await?;
    if cancelled {
        actor.did(&shared, "cancel-rebuild", &collection, reason.as_deref(), "cancelled").await;
    }
    json_of(&json!({ "collection": collection, "cancelled": cancelled }))
}

async fn undo<S: Backend>(
    State(shared): State<Shared<S>>,
    actor: Actor,
    Named(collection): Named<String>,
    Reason(reason): Reason,
) -> Answer {
    known(&shared, &collection)?;
    shared.app.undo(&collection).await?;
    actor.did(&shared, "undo", &collection, reason.as_deref(), "switched back").await;
    json_of(&json!({ "collection": collection, "undone": true }))
}
