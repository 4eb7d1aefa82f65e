//! The doctor: findings about the system, each with advice.

use axum::extract::State;
use leftfold::inspect::doctor::{Area, Finding, worst};
use serde_json::json;

use super::health::while_responsive;
use super::{Answer, Operation, json_of};
use crate::access::Scope;
use crate::ready::{Trouble, TroubleKind};
use crate::{Backend, Shared};

pub(super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    vec![
        Operation::get(
            "/doctor",
            "examine",
            "Examine the store, projections, held deliveries and reactions, with advice for each problem",
            examine::<S>,
        )
        .scope(Scope::Operate),
    ]
}

async fn examine<S: Backend>(State(shared): State<Shared<S>>) -> Answer {
    shared.readiness.first_verdict().await;
    let mut findings = match while_responsive(&shared, async { Ok(shared.app.doctor().await) }).await {
        Ok(Ok(findings)) => findings,
        Ok(Err(error)) => vec![Finding::failed(Area::Store, "store", &error)],
        Err(_) => Vec::new(),
    };
    if let Some(reason) = shared.readiness.refusal() {
        findings.push(Finding::failed(Area::Store, "readiness", &reason));
    }
    for Trouble { kind, name, reason } in shared.readiness.troubles() {
        let (area, advice) = match kind {
            // The findings above cover these already.
            TroubleKind::Parked | TroubleKind::Failing => continue,
            TroubleKind::Stuck => {
                (Area::Projections, "see the log of the process that folds this projection")
            }
            TroubleKind::Feed => {
                (Area::Service, "check that the broker runs, its address, and the permissions of the user")
            }
        };
        findings.push(Finding::wrong(area, name, reason, advice));
    }
    json_of(&json!({ "worst": worst(&findings), "findings": findings }))
}
