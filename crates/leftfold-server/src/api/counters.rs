//! Counters: numbers for producers that need revisions.

use axum::extract::State;
use axum::http::HeaderMap;
use leftfold::revision::Draw;
use leftfold::{Env as _, StreamId, System};
use serde::Deserialize;
use serde_json::json;

use super::extract::{Named, Params};
use super::{Answer, Operation, json_of};
use crate::access::Scope;
use crate::idempotency::idempotency_key;
use crate::problem::Problem;
use crate::{Backend, Shared};

pub(super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    vec![
        Operation::post(
            "/counters/{name}",
            "draw",
            "Draw the next numbers of a counter; no other request gets them",
            draw::<S>,
        )
        .scope(Scope::Ingest)
        .query("count", "The number of numbers to draw: 1 by default, at most 1000000", "integer")
        .header("Idempotency-Key", "Makes the request idempotent: a repeated request gets the same numbers"),
    ]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DrawQuery {
    count: Option<u64>,
}

async fn draw<S: Backend>(
    State(shared): State<Shared<S>>,
    Named(counter): Named<String>,
    Params(params): Params<DrawQuery>,
    headers: HeaderMap,
) -> Answer {
    StreamId::new(&counter)?;
    let count = params.count.unwrap_or(1);
    if !(1..=1_000_000).contains(&count) {
        return Err(Problem::invalid(format!("count: expected 1 to 1000000, not {count}")));
    }
    let client = match idempotency_key(&headers)? {
        Some(key) => key,
        None => format!("{:016x}{:016x}", System.random(), System.random()),
    };
    let first = shared.app.store().draw(Draw { counter, count, client, request: 1 }).await?;
    json_of(&json!({ "first": first, "last": first + count - 1 }))
}
