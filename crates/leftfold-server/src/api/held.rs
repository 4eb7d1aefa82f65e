//! Held events: listing the streams that wait, and skipping missing revisions.

use axum::extract::State;
use leftfold::{Revision, StreamId};
use serde::Deserialize;
use serde_json::json;

use super::audit::Actor;
use super::extract::{Content, Named, Params};
use super::{Answer, Operation, Paged, json_of, page_limit};
use crate::access::Scope;
use crate::idempotency::AfterUnknown;
use crate::{Backend, Shared};

pub(super) fn operations<S: Backend>() -> Vec<Operation<S>> {
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
        .idempotent(AfterUnknown::Repeat)
        .body("application/json", skip),
    ]
}

async fn held<S: Backend>(State(shared): State<Shared<S>>, Params(params): Params<Paged>) -> Answer {
    let after = params.after.map(StreamId::new).transpose()?;
    let found = shared.app.store().waiting(after, page_limit(params.limit)?).await?;
    let held = found.iter().map(|(stream, state)| {
        let wanted = state.waiting.as_ref().map(|waiting| (state.after().0 + 1, waiting.until.0));
        let waiting = state.waiting.as_ref();
        json!({
            "stream": stream,
            "last": state.last,
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
