//! Liveness and readiness.

use std::fmt::Write as _;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep;

use super::extract::Params;
use super::{Answer, Operation, with_type};
use crate::access::is_known;
use crate::problem::Problem;
use crate::{Backend, Shared};

pub(super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    vec![
        Operation::get("/healthz", "live", "Check that the process runs", live).answers(
            200,
            "text/plain",
            "The process runs",
        ),
        Operation::get(
            "/readyz",
            "ready",
            "Check that the server can serve requests: the store works, and the server is not about to stop",
            ready::<S>,
        )
        .query("strict", "Respond with 503 also if the server is degraded", "boolean")
        .header("Authorization", "A token with any scopes; the response then contains the reasons")
        .answers(
            200,
            "text/plain",
            "`ready`; or `degraded` if a projection is stuck, fails or has parked records, or a feed is dead",
        )
        .fails(503, "The server is not ready or, with `strict`, degraded"),
    ]
}

async fn live() -> Answer {
    Ok(with_type("alive\n", "text/plain"))
}

/// The extra time for a request after the store failed the probe: reading may still work.
const LAST_CHANCE: Duration = Duration::from_millis(150);

/// The query of `/readyz`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ready {
    strict: Option<String>,
}

impl Ready {
    /// Returns whether `?strict` is set.
    pub(crate) fn is_strict(&self) -> bool {
        matches!(self.strict.as_deref(), Some("" | "true" | "1"))
    }
}

async fn ready<S: Backend>(
    State(shared): State<Shared<S>>,
    Params(query): Params<Ready>,
    headers: HeaderMap,
) -> Answer {
    let shows_reasons = is_known(&shared.tokens, &headers);
    let hidden = "send a token to get the reasons";
    if shared.is_stopping() {
        return Err(Problem::not_ready("the server is stopping"));
    }
    shared.readiness.first_verdict().await;
    if let Some(reason) = shared.readiness.refusal() {
        return Err(Problem::not_ready(if shows_reasons { &reason } else { hidden }).retry_after(1));
    }
    let troubles = shared.readiness.troubles();
    if troubles.is_empty() {
        return Ok(with_type("ready\n", "text/plain"));
    }
    if query.is_strict() {
        let problem = Problem::degraded(if shows_reasons { "see the reasons" } else { hidden });
        return Err(if shows_reasons { problem.with("reasons", json!(troubles)) } else { problem });
    }
    let mut text = "degraded\n".to_owned();
    if shows_reasons {
        for trouble in troubles {
            // Writing to a string never fails.
            let _ = writeln!(text, "{trouble}");
        }
    }
    Ok(with_type(text, "text/plain"))
}

/// Runs work on the store. Gives up when the store is found unresponsive.
pub(super) async fn while_responsive<S: Backend, T>(
    shared: &Shared<S>,
    work: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    let refused = async {
        let reason = shared.readiness.refused().await;
        sleep(LAST_CHANCE).await;
        reason
    };
    tokio::select! { biased;
        answer = work => answer,
        reason = refused => Err(Problem::unavailable(reason).retry_after(1)),
    }
}
