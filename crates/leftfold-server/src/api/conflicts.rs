//! The stages before the log: held events, conflicts and rejected messages.

use axum::extract::State;
use jiff::Timestamp;
use leftfold::log::Entry;
use leftfold::sequence::{Conflict, Rejected, Resolution};
use leftfold::{Env as _, EventId, EventKind, Json, Policy, Revision, StreamId, System};
use leftfold_sources::{Resubmitted, resubmit};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::audit::{self, Actor, Reason};
use super::extract::{Content, Named, Params};
use super::streams::page;
use super::{Answer, Operation, fill, json_of};
use crate::access::Scope;
use crate::problem::Problem;
use crate::{Backend, Shared};

pub(super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    let reason = json!({
        "type": "object", "additionalProperties": false, "required": ["reason"],
        "properties": { "reason": { "type": "string" } },
    });
    let skip = json!({
        "type": "object", "additionalProperties": false, "required": ["through", "reason"],
        "properties": { "through": { "type": "integer" }, "reason": { "type": "string" } },
    });
    vec![
        Operation::get("/held", "listHeld", "List streams with held events", held::<S>)
            .scope(Scope::Operate)
            .query("after", "The `after` of the previous page", "string")
            .query("limit", "The maximum number of streams: 100 by default, at most 1000", "integer"),
        Operation::post(
            "/held/{stream}/skip",
            "skipHeld",
            "Skip missing revisions of a stream, and release the events held behind them",
            skip_held::<S>,
        )
        .scope(Scope::Operate)
        .once()
        .body("application/json", skip),
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
        .once()
        .body("application/json", reason)
        .fails(404, "The conflict does not exist"),
        Operation::post(
            "/conflicts/{id}/discard",
            "discardConflict",
            "Resolve a conflict: delete the conflicting event, as if it had never arrived",
            discard::<S>,
        )
        .scope(Scope::Operate)
        .once()
        .optional_body("application/json", audit::reason())
        .fails(404, "The conflict does not exist"),
        Operation::get("/rejected", "listRejected", "List rejected messages", rejected::<S>)
            .scope(Scope::Operate)
            .query("after", "The `after` of the previous page", "string")
            .query("limit", "The maximum number of items: 100 by default, at most 1000", "integer"),
        Operation::post(
            "/rejected/{id}/resubmit",
            "resubmitRejected",
            "Ingest a rejected message again",
            again::<S>,
        )
        .scope(Scope::Operate)
        .once()
        .optional_body("application/json", audit::reason())
        .fails(404, "The message does not exist"),
        Operation::post("/rejected/{id}/forget", "forgetRejected", "Delete a rejected message", forget::<S>)
            .scope(Scope::Operate)
            .once()
            .optional_body("application/json", audit::reason())
            .fails(404, "The message does not exist"),
    ]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Paged {
    pub(super) after: Option<String>,
    pub(super) limit: Option<usize>,
}

async fn held<S: Backend>(State(shared): State<Shared<S>>, Params(params): Params<Paged>) -> Answer {
    let after = params.after.map(StreamId::new).transpose()?;
    let found = shared.app.store().waiting(after, page(params.limit)?).await?;
    let held = found.iter().map(|(stream, standing)| {
        let wanted = standing.waiting.as_ref().map(|waiting| (standing.after().0 + 1, waiting.until.0));
        let waiting = standing.waiting.as_ref();
        json!({
            "stream": stream,
            "last": standing.last,
            "waits_for": wanted.filter(|(first, last)| first <= last),
            "since": waiting.map(|waiting| waiting.since),
            "held": waiting.map(|waiting| waiting.events),
            "bytes": waiting.map(|waiting| waiting.bytes),
            "highest": waiting.map(|waiting| waiting.highest),
            "asked": waiting.map(|waiting| waiting.asked),
            "trouble": waiting.and_then(|waiting| waiting.trouble.as_deref()),
        })
    });
    json_of(&json!({ "held": held.collect::<Vec<_>>(), "after": found.last().map(|(stream, _)| stream) }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Skip {
    through: u64,
    reason: String,
}

async fn skip_held<S: Backend>(
    State(shared): State<Shared<S>>,
    actor: Actor,
    Named(stream): Named<String>,
    content: Content,
) -> Answer {
    let Skip { through, reason } = content.json()?;
    let target = format!("{stream} through {through}");
    let released = shared.sequencer.skip(&StreamId::new(stream)?, Revision(through), &reason).await?;
    let outcome = format!("{released} released");
    actor.did(&shared, "skip-held", &target, Some(&reason), &outcome).await;
    json_of(&json!({ "released": released }))
}

async fn conflicts<S: Backend>(State(shared): State<Shared<S>>, Params(params): Params<Paged>) -> Answer {
    let most = page(params.limit)?;
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
struct Why {
    reason: String,
}

async fn keep<S: Backend>(
    State(shared): State<Shared<S>>,
    actor: Actor,
    Named(id): Named<String>,
    content: Content,
) -> Answer {
    let Why { reason } = content.json()?;
    let decided = Resolution { reason: reason.clone(), at: System.now() };
    resolve(&shared, &actor, &id, Some(decided), Some(&reason)).await
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
    decided: Option<Resolution>,
    reason: Option<&str>,
) -> Answer {
    let conflict = found(shared, id).await?;
    let (action, outcome) = match &decided {
        Some(_) => ("keep-stored", "what is there is right"),
        None => ("discard-conflict", "forgotten"),
    };
    let is_done = shared.app.store().resolve(&conflict, decided).await?;
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
            return Err(Problem::missing(format!("there is no conflict {id}")));
        }
    }
}

async fn rejected<S: Backend>(State(shared): State<Shared<S>>, Params(params): Params<Paged>) -> Answer {
    let _turn = shared.turn().await;
    let read = |after, most| shared.app.store().rejected(after, most);
    let size = |rejected: &Rejected| rejected.content.len() + 1_000;
    let (found, more) = fill(page(params.limit)?, params.after, read, Rejected::id, size).await?;
    let rejected = found.iter().map(|rejected| {
        json!({
            "id": rejected.id(), "source": rejected.source, "reason": rejected.reason, "since": rejected.since,
            "attributes": rejected.attributes, "bytes": rejected.content.len(),
            "text": str::from_utf8(&rejected.content).ok(),
        })
    });
    let rejected: Vec<_> = rejected.collect();
    json_of(&json!({ "rejected": rejected, "after": found.last().map(Rejected::id), "more": more }))
}

async fn again<S: Backend>(
    State(shared): State<Shared<S>>,
    actor: Actor,
    Named(id): Named<String>,
    Reason(reason): Reason,
) -> Answer {
    let answer = match resubmit(&shared.sequencer, &id, &shared.mapping, Policy::Contiguous).await? {
        Resubmitted::NotThere => return Err(Problem::missing(format!("there is no rejected message {id}"))),
        Resubmitted::StillRejected(invalid) => {
            json!({ "outcome": "still-rejected", "error": invalid.to_string() })
        }
        Resubmitted::Answered(answer) => {
            let answer = format!("{answer:?}");
            actor.did(&shared, "resubmit-rejected", &id, reason.as_deref(), &answer).await;
            json!({ "outcome": "submitted", "answer": answer })
        }
    };
    json_of(&answer)
}

async fn forget<S: Backend>(
    State(shared): State<Shared<S>>,
    actor: Actor,
    Named(id): Named<String>,
    Reason(reason): Reason,
) -> Answer {
    if shared.app.store().forget(&id).await? {
        actor.did(&shared, "forget-rejected", &id, reason.as_deref(), "forgotten").await;
        json_of(&json!({ "id": id, "forgotten": true }))
    } else {
        Err(Problem::missing(format!("there is no rejected message {id}")))
    }
}
