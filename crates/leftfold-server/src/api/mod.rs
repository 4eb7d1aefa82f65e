//! The operations of the API. Each defines its route, its description and the scope that a token
//! needs for it. The router and the `OpenAPI` document are both generated from them.

mod audit;
mod changes;
mod conflicts;
mod counters;
mod doctor;
mod documents;
pub(crate) mod events;
mod extract;
mod health;
mod log;
mod meters;
mod rebuilds;

mod sse;
mod streams;
mod tasks;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::handler::Handler;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use serde::Serialize;
use serde_json::{Value, json};

pub(crate) use self::health::Ready;
pub(crate) use self::rebuilds::{Rebuilds, take_up as take_up_rebuilds};
use crate::access::{Scope, guarded};
use crate::idempotency::once;
use crate::problem::Problem;
use crate::{Backend, Shared};

type Answer = Result<Response, Problem>;

/// The maximum number of items in a page.
const MOST: usize = 1_000;
/// The maximum size of a page in bytes, unless its first item alone is larger.
const PAGE_BYTES: usize = 1 << 20;

/// An operation of the API.
pub(crate) struct Operation<S: Backend> {
    path: &'static str,
    described: Described,
    route: MethodRouter<Shared<S>>,
}

/// The description of an operation.
struct Described {
    method: &'static str,
    name: &'static str,
    summary: &'static str,
    scope: Option<Scope>,
    /// `Some` if an `Idempotency-Key` makes it idempotent: then, whether it may be repeated after
    /// an unknown outcome.
    once: Option<bool>,
    query: Vec<(&'static str, &'static str, Value)>,
    headers: Vec<(&'static str, &'static str)>,
    /// The schemas of the body, by content type.
    body: Vec<(&'static str, Value)>,
    is_body_optional: bool,
    answers: Vec<(u16, &'static str, &'static str)>,
}

impl<S: Backend> Operation<S> {
    fn new<H: Handler<T, Shared<S>>, T: 'static>(
        method: MethodFilter,
        path: &'static str,
        described: Described,
        handler: H,
    ) -> Self {
        Self { path, described, route: on(method, handler) }
    }

    fn get<H: Handler<T, Shared<S>>, T: 'static>(
        path: &'static str,
        name: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self {
        let described = Described::new("get", name, summary);
        Self::new(MethodFilter::GET, path, described, handler).answers(200, "application/json", "The result")
    }

    fn post<H: Handler<T, Shared<S>>, T: 'static>(
        path: &'static str,
        name: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self {
        let described = Described::new("post", name, summary);
        Self::new(MethodFilter::POST, path, described, handler).answers(
            200,
            "application/json",
            "The operation succeeded",
        )
    }

    fn scope(self, scope: Scope) -> Self {
        self.describe(|described| described.scope(scope))
    }

    /// Makes requests with an `Idempotency-Key` idempotent. Repeating one after an unknown outcome
    /// is harmless.
    fn once(self) -> Self {
        self.describe(|described| described.once(true))
    }

    /// Makes requests with an `Idempotency-Key` idempotent, where repeating one is not harmless.
    fn strictly_once(self) -> Self {
        self.describe(|described| described.once(false))
    }

    fn query(self, name: &'static str, summary: &'static str, kind: &str) -> Self {
        self.describe(|mut described| {
            described.query.push((name, summary, json!({ "type": kind })));
            described
        })
    }

    fn header(self, name: &'static str, summary: &'static str) -> Self {
        self.describe(|described| described.header(name, summary))
    }

    fn body(self, kind: &'static str, schema: Value) -> Self {
        self.describe(|described| described.body(kind, schema))
    }

    /// Adds a content type of the body, which may be left out.
    fn optional_body(self, kind: &'static str, schema: Value) -> Self {
        self.describe(|described| Described { is_body_optional: true, ..described.body(kind, schema) })
    }

    fn answers(self, status: u16, kind: &'static str, summary: &'static str) -> Self {
        self.describe(|described| described.answers(status, kind, summary))
    }

    /// Adds a failure, which is returned as problem details.
    fn fails(self, status: u16, summary: &'static str) -> Self {
        self.describe(|described| described.fails(status, summary))
    }

    fn describe(self, describe: impl FnOnce(Described) -> Described) -> Self {
        Self { described: describe(self.described), ..self }
    }
}

impl Described {
    fn new(method: &'static str, name: &'static str, summary: &'static str) -> Self {
        let (query, headers, body, answers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let is_body_optional = false;
        Self {
            method,
            name,
            summary,
            scope: None,
            once: None,
            query,
            headers,
            body,
            is_body_optional,
            answers,
        }
    }

    fn scope(self, scope: Scope) -> Self {
        Self { scope: Some(scope), ..self }
    }

    fn once(self, repeatable: bool) -> Self {
        let key = "Makes the request idempotent: for a day, a repeated request gets the first response";
        Self { once: Some(repeatable), ..self }
            .header("Idempotency-Key", key)
            .fails(409, "The request conflicts with the state, or one with the same key is in progress")
            .fails(422, "A different request used this key")
    }

    fn header(mut self, name: &'static str, summary: &'static str) -> Self {
        self.headers.push((name, summary));
        self
    }

    /// Adds a content type of the body.
    fn body(mut self, kind: &'static str, schema: Value) -> Self {
        self.body.push((kind, schema));
        self
    }

    fn answers(mut self, status: u16, kind: &'static str, summary: &'static str) -> Self {
        self.answers.retain(|(other, ..)| *other != status);
        self.answers.push((status, kind, summary));
        self
    }

    fn fails(self, status: u16, summary: &'static str) -> Self {
        self.answers(status, PROBLEM, summary)
    }
}

const PROBLEM: &str = "application/problem+json";

/// Returns all operations.
fn operations<S: Backend>() -> Vec<Operation<S>> {
    [
        streams::operations(),
        log::operations(),
        documents::operations(),
        changes::operations(),
        rebuilds::operations(),
        conflicts::operations(),
        tasks::operations(),
        counters::operations(),
        audit::operations(),
        health::operations(),
        doctor::operations(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the routes of all operations, and of their description.
pub(crate) fn router<S: Backend>(shared: Shared<S>) -> Router {
    let operations = operations::<S>();
    let description = Arc::new(description(&operations).to_string());
    let describe = move || async move { with_type(description.to_string(), "application/json") };
    let mut routes: BTreeMap<&'static str, MethodRouter<Shared<S>>> = BTreeMap::new();
    for Operation { path, described, route } in operations {
        let route = match described.once {
            Some(repeatable) => once(route, repeatable, &shared),
            None => route,
        };
        let route = match described.scope {
            Some(scope) => guarded(route, scope, &shared),
            None => route,
        };
        let others = routes.remove(path).unwrap_or_default();
        routes.insert(path, others.merge(route));
    }
    let refused = || async { Problem::not_allowed("see /openapi.json for what can be done here") };
    let missing = || async { Problem::missing("see /openapi.json for what there is") };
    let all = Router::new().route("/openapi.json", axum::routing::get(describe));
    let all = routes.into_iter().fold(all, |all, (path, route)| all.route(path, route.fallback(refused)));
    all.fallback(missing).with_state(shared)
}

/// Returns the `OpenAPI` document.
fn description<S: Backend>(operations: &[Operation<S>]) -> Value {
    let mut paths: BTreeMap<&str, BTreeMap<&str, Value>> = BTreeMap::new();
    let events = events::described();
    let all = operations.iter().map(|operation| (operation.path, &operation.described));
    for (path, described) in all.chain([(events::PATH, &events)]) {
        paths.entry(path).or_default().insert(described.method, described.in_openapi(path));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Leftfold",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Folds events into documents, each event exactly once and in order.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": {
                "Problem": {
                    "type": "object",
                    "description": "The details of an error (RFC 9457).",
                    "required": ["type", "title", "status", "detail"],
                    "properties": {
                        "type": { "type": "string" }, "title": { "type": "string" },
                        "status": { "type": "integer" }, "detail": { "type": "string" },
                    },
                },
            },
        },
    })
}

impl Described {
    fn in_openapi(&self, path: &str) -> Value {
        let segments = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let in_path = segments.map(
            |name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }),
        );
        let in_query = self.query.iter().map(|(name, summary, schema)| {
            json!({ "name": name, "in": "query", "description": summary, "schema": schema })
        });
        let in_headers = self.headers.iter().map(|(name, summary)| {
            json!({ "name": name, "in": "header", "description": summary, "schema": { "type": "string" } })
        });
        let mut responses: BTreeMap<String, Value> = BTreeMap::new();
        for (status, kind, summary) in &self.answers {
            let schema =
                if *kind == PROBLEM { json!({ "$ref": "#/components/schemas/Problem" }) } else { json!({}) };
            let content = if kind.is_empty() { json!({}) } else { json!({ *kind: { "schema": schema } }) };
            responses.insert(status.to_string(), json!({ "description": summary, "content": content }));
        }
        let problem = json!({ PROBLEM: { "schema": { "$ref": "#/components/schemas/Problem" } } });
        responses
            .insert("default".to_owned(), json!({ "description": "The request failed", "content": problem }));
        let mut operation = json!({
            "operationId": self.name,
            "summary": self.summary,
            "parameters": in_path.chain(in_query).chain(in_headers).collect::<Vec<_>>(),
            "responses": responses,
        });
        if !self.body.is_empty() {
            let kinds = self.body.iter().map(|(kind, schema)| (*kind, json!({ "schema": schema })));
            let content: BTreeMap<_, _> = kinds.collect();
            operation["requestBody"] = json!({ "required": !self.is_body_optional, "content": content });
        }
        if let Some(scope) = self.scope {
            operation["security"] = json!([{ "token": [scope.name()] }]);
        }
        operation
    }
}

/// Reads a page of a list that its store limits by number alone. It reads in small steps, so that
/// at most one step is in memory beyond the page. Returns the items, and whether there may be more.
async fn fill<T, K, F: Future<Output = leftfold::Result<Vec<T>>>>(
    most: usize,
    mut after: Option<K>,
    read: impl Fn(Option<K>, usize) -> F,
    key: impl Fn(&T) -> K,
    size: impl Fn(&T) -> usize,
) -> Result<(Vec<T>, bool), Problem> {
    const STEP: usize = 8;
    let (mut page, mut left) = (Vec::new(), PAGE_BYTES);
    while page.len() < most {
        let wanted = STEP.min(most - page.len());
        let items = read(after, wanted).await?;
        let is_over = items.len() < wanted;
        for item in items {
            let size = size(&item);
            if size > left && !page.is_empty() {
                return Ok((page, true));
            }
            left = left.saturating_sub(size);
            page.push(item);
        }
        if is_over {
            return Ok((page, false));
        }
        after = page.last().map(&key);
    }
    Ok((page, true))
}

/// Responds with JSON.
fn json_of(value: &impl Serialize) -> Answer {
    let mut body = serde_json::to_string(value).map_err(|error| Problem::failed(error.to_string()))?;
    // The memory budget counts only the length.
    body.shrink_to_fit();
    Ok(with_type(body, "application/json"))
}

fn with_type(body: impl Into<Body>, kind: &'static str) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn with_status(mut response: Response, status: StatusCode) -> Response {
    *response.status_mut() = status;
    response
}
