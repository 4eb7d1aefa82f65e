//! For those who run it: what is not as it should be, and what to do about it.

use axum::extract::State;
use leftfold::doctor::worst;
use serde_json::json;

use super::{Answer, Operation, json_of};
use crate::access::Scope;
use crate::{Backend, Shared};

pub(super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    vec![
        Operation::get(
            "/doctor",
            "examine",
            "Looks over the store, the projections, what waits and the reactions; each finding that is not fine says what to do",
            examine::<S>,
        )
        .scope(Scope::Operate),
    ]
}

async fn examine<S: Backend>(State(shared): State<Shared<S>>) -> Answer {
    let findings = shared.app.doctor().await?;
    json_of(&json!({ "worst": worst(&findings), "findings": findings }))
}
