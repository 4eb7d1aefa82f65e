//! The audit trail of the operators' actions, with times and reasons. Each operation that changes
//! something records an entry when it is done.

use std::convert::Infallible;

use axum::extract::{FromRequest, FromRequestParts, Request, State};
use axum::http::header::CONTENT_LENGTH;
use axum::http::request::Parts;
use leftfold::System;
use leftfold::audit::{Action, Trail};
use serde::Deserialize;
use serde_json::{Value, json};

use super::extract::{Content, Params};
use super::{Answer, Operation, Paged, json_of, page_limit};
use crate::access::{Caller, Scope};
use crate::problem::Problem;
use crate::{Backend, Shared};

/// The actor if the server has no tokens.
const ANONYMOUS: &str = "anonymous";

pub(super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    vec![
        Operation::get("/audit", "listAudit", "List the actions of operators, newest first", list::<S>)
            .scope(Scope::Operate)
            .query("after", "The `after` of the previous page", "string")
            .query("limit", "The maximum number of entries: 100 by default, at most 1000", "integer"),
    ]
}

async fn list<S: Backend>(State(shared): State<Shared<S>>, Params(params): Params<Paged>) -> Answer {
    let trail = Trail::on(shared.app.store().clone());
    let (entries, after) = trail.list(params.after.as_deref(), page_limit(params.limit)?).await?;
    json_of(&json!({ "entries": entries, "after": after }))
}

/// The actor of an operation: the name of the token.
#[derive(Clone)]
pub(super) struct Actor(String);

impl<S: Send + Sync> FromRequestParts<S> for Actor {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let caller = parts.extensions.get::<Caller>();
        Ok(Self(caller.map_or_else(|| ANONYMOUS.to_owned(), |caller| caller.0.clone())))
    }
}

impl Actor {
    /// Records an action. A failure is only logged, because the action is done already.
    pub(super) async fn did<S: Backend>(
        &self,
        shared: &Shared<S>,
        action: &str,
        target: &str,
        reason: Option<&str>,
        outcome: &str,
    ) {
        let done = Action::new(&self.0, action, target).because(reason).ended(outcome);
        if let Err(error) = Trail::on(shared.app.store().clone()).record(&System, done).await {
            let actor = &self.0;
            tracing::error!(%error, %actor, action, target, outcome, "recording an action in the audit trail failed");
        }
    }
}

/// A body that contains only the reason of an action; it may be empty.
pub(super) struct Reason(pub(super) Option<String>);

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReasonBody {
    #[serde(default)]
    reason: Option<String>,
}

impl<S: Backend> FromRequest<Shared<S>> for Reason {
    type Rejection = Problem;

    async fn from_request(request: Request, shared: &Shared<S>) -> Result<Self, Problem> {
        // An empty body may have any content type.
        if request.headers().get(CONTENT_LENGTH).is_some_and(|length| length == "0") {
            return Ok(Self(None));
        }
        let content = Content::from_request(request, shared).await?;
        Ok(Self(content.json_or_default::<ReasonBody>()?.reason))
    }
}

/// Returns the schema of such a body.
pub(super) fn reason() -> Value {
    json!({
        "type": "object", "additionalProperties": false,
        "properties": { "reason": { "type": "string", "description": REASON } },
    })
}

/// The description of a reason.
pub(super) const REASON: &str = "The reason of the action; kept in the audit trail";
