//! Rejected messages: listing, resubmitting and deleting them.

use axum::extract::State;
use leftfold::Policy;
use leftfold::sequence::Rejected;
use leftfold_sources::{Resubmitted, resubmit};
use serde_json::json;

use super::audit::{self, Actor, Reason};
use super::extract::{Named, Params};
use super::{Answer, Operation, Paged, fill, json_of, page_limit};
use crate::access::Scope;
use crate::idempotency::AfterUnknown;
use crate::problem::Problem;
use crate::{Backend, Shared};

pub(super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    vec![
        Operation::get("/rejected", "listRejected", "List rejected messages", rejected::<S>)
            .scope(Scope::Operate)
            .query("after", "The `after` of the previous page", "string")
            .query("limit", "The maximum number of items: 100 by default, at most 1000", "integer"),
        Operation::post(
            "/rejected/{id}/resubmit",
            "resubmitRejected",
            "Ingest a rejected message again",
            resubmit_rejected::<S>,
        )
        .scope(Scope::Operate)
        .idempotent(AfterUnknown::Repeat)
        .optional_body("application/json", audit::reason())
        .fails(404, "The message does not exist"),
        Operation::post("/rejected/{id}/forget", "forgetRejected", "Delete a rejected message", forget::<S>)
            .scope(Scope::Operate)
            .idempotent(AfterUnknown::Repeat)
            .optional_body("application/json", audit::reason())
            .fails(404, "The message does not exist"),
    ]
}

async fn rejected<S: Backend>(State(shared): State<Shared<S>>, Params(params): Params<Paged>) -> Answer {
    let _turn = shared.turn().await;
    let read = |after, most| shared.app.store().rejected(after, most);
    let size = |rejected: &Rejected| rejected.content.len() + 1_000;
    let (found, more) = fill(page_limit(params.limit)?, params.after, read, Rejected::id, size).await?;
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

async fn resubmit_rejected<S: Backend>(
    State(shared): State<Shared<S>>,
    actor: Actor,
    Named(id): Named<String>,
    Reason(reason): Reason,
) -> Answer {
    let answer = match resubmit(&shared.sequencer, &id, &shared.mapping, Policy::Contiguous).await? {
        Resubmitted::NotThere => {
            return Err(Problem::missing(format!("rejected message {id} does not exist")));
        }
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
        actor.did(&shared, "forget-rejected", &id, reason.as_deref(), "deleted").await;
        json_of(&json!({ "id": id, "forgotten": true }))
    } else {
        Err(Problem::missing(format!("rejected message {id} does not exist")))
    }
}
