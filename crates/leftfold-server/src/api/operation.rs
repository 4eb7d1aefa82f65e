//! An operation of the API: its route, its description, and the scope that a token needs for it.

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use serde_json::{Value, json};

use crate::access::{Scope, guarded};
use crate::idempotency::{AfterUnknown, IdentifyingHeaders, Keyed, keyed};
use crate::{Backend, Shared};

/// The content type of failures.
pub(super) const PROBLEM: &str = "application/problem+json";

/// An operation of the API.
pub(super) struct Operation<S: Backend> {
    pub(super) path: &'static str,
    pub(super) description: Description,
    handler: MethodRouter<Shared<S>>,
    /// The treatment of requests with an `Idempotency-Key`, unless the handler ignores it or treats
    /// it by itself.
    keyed: Option<Keyed<S>>,
}

/// The description of an operation.
pub(super) struct Description {
    pub(super) method: &'static str,
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    pub(super) scope: Option<Scope>,
    pub(super) query: Vec<(&'static str, &'static str, Value)>,
    pub(super) headers: Vec<(&'static str, &'static str)>,
    /// The schemas of the body, by content type.
    pub(super) body: Vec<(&'static str, Value)>,
    pub(super) is_body_optional: bool,
    pub(super) answers: Vec<DescribedAnswer>,
}

/// The description of a response.
pub(super) struct DescribedAnswer {
    pub(super) status: u16,
    /// The content type; empty for a response without a body.
    pub(super) kind: &'static str,
    pub(super) summary: &'static str,
    pub(super) schema: Value,
}

impl<S: Backend> Operation<S> {
    pub(super) fn get<H: Handler<T, Shared<S>>, T: 'static>(
        path: &'static str,
        name: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self {
        let description = Description::new("get", name, summary);
        let handler = on(MethodFilter::GET, handler);
        Self { path, description, handler, keyed: None }.answers(200, "application/json", "The result")
    }

    pub(super) fn post<H: Handler<T, Shared<S>>, T: 'static>(
        path: &'static str,
        name: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self {
        let description = Description::new("post", name, summary);
        let handler = on(MethodFilter::POST, handler);
        let operation = Self { path, description, handler, keyed: None };
        operation.answers(200, "application/json", "The operation succeeded")
    }

    /// Requires a token with this scope.
    pub(super) fn scope(mut self, scope: Scope) -> Self {
        self.description.scope = Some(scope);
        self
    }

    /// Makes requests with an `Idempotency-Key` idempotent.
    pub(super) fn idempotent(self, after_unknown: AfterUnknown) -> Self {
        self.idempotent_with_headers(after_unknown, |_, _| false)
    }

    /// Makes requests with an `Idempotency-Key` idempotent. Requests that differ in one of the
    /// identifying headers are different requests.
    pub(super) fn idempotent_with_headers(
        mut self,
        after_unknown: AfterUnknown,
        identifying_headers: IdentifyingHeaders<S>,
    ) -> Self {
        self.keyed = Some(Keyed { after_unknown, identifying_headers });
        let key = "Makes the request idempotent: for a day, a repeated request gets the first response";
        self.header("Idempotency-Key", key)
            .fails(409, "The request conflicts with the state, or one with the same key is in progress")
            .fails(422, "A different request used this key")
    }

    pub(super) fn query(mut self, name: &'static str, summary: &'static str, kind: &str) -> Self {
        self.description.query.push((name, summary, json!({ "type": kind })));
        self
    }

    pub(super) fn header(mut self, name: &'static str, summary: &'static str) -> Self {
        self.description.headers.push((name, summary));
        self
    }

    /// Adds a content type of the body.
    pub(super) fn body(mut self, kind: &'static str, schema: Value) -> Self {
        self.description.body.push((kind, schema));
        self
    }

    /// Adds a content type of the body, which may be left out.
    pub(super) fn optional_body(mut self, kind: &'static str, schema: Value) -> Self {
        self.description.is_body_optional = true;
        self.body(kind, schema)
    }

    /// Adds a response, or replaces the one with the same status.
    pub(super) fn answers(self, status: u16, kind: &'static str, summary: &'static str) -> Self {
        self.answers_with(status, kind, summary, json!({}))
    }

    /// Adds a response with a schema, or replaces the one with the same status.
    pub(super) fn answers_with(
        mut self,
        status: u16,
        kind: &'static str,
        summary: &'static str,
        schema: Value,
    ) -> Self {
        let answers = &mut self.description.answers;
        answers.retain(|other| other.status != status);
        answers.push(DescribedAnswer { status, kind, summary, schema });
        self
    }

    /// Adds a failure, which is returned as problem details.
    pub(super) fn fails(self, status: u16, summary: &'static str) -> Self {
        self.answers_with(status, PROBLEM, summary, json!({ "$ref": "#/components/schemas/Problem" }))
    }

    /// Returns the path and the route, which checks the token before anything else.
    pub(super) fn into_route(self, shared: &Shared<S>) -> (&'static str, MethodRouter<Shared<S>>) {
        let Self { path, description, handler, keyed: treatment } = self;
        let route = match treatment {
            Some(treatment) => keyed(handler, treatment, shared),
            None => handler,
        };
        let route = match description.scope {
            Some(scope) => guarded(route, scope, shared),
            None => route,
        };
        (path, route)
    }
}

impl Description {
    fn new(method: &'static str, name: &'static str, summary: &'static str) -> Self {
        Self {
            method,
            name,
            summary,
            scope: None,
            query: Vec::new(),
            headers: Vec::new(),
            body: Vec::new(),
            is_body_optional: false,
            answers: Vec::new(),
        }
    }
}
