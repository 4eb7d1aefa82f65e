//! The status of projections and of the sequencer.

use std::sync::PoisonError;

use axum::extract::State;
use leftfold::{Env as _, System};
use serde_json::json;

use super::health::while_responsive;
use super::{Answer, Operation, json_of};
use crate::access::Scope;
use crate::{Backend, Shared};

pub(super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    vec![
        Operation::get(
            "/status",
            "status",
            "Show the progress of each projection, the held deliveries and the last errors",
            status::<S>,
        )
        .scope(Scope::Read),
    ]
}

async fn status<S: Backend>(State(shared): State<Shared<S>>) -> Answer {
    let read = async {
        let (projections, sequence) = (shared.app.status().await?, shared.sequencer.status().await?);
        Ok(json!({ "projections": projections, "sequence": sequence }))
    };
    let answer = match while_responsive(&shared, read).await {
        Ok(status) => {
            let last = Some((System.now(), status.clone()));
            *shared.last_status.lock().unwrap_or_else(PoisonError::into_inner) = last;
            status
        }
        Err(problem) => {
            // An old status is better than none, if it is marked as stale.
            let last = shared.last_status.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let Some((at, mut status)) = last else { return Err(problem) };
            status["stale"] = json!({ "since": at, "reason": shared.readiness.refusal() });
            status
        }
    };
    json_of(&answer)
}
