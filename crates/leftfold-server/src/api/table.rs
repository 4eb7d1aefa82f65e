//! The table of all operations. The routes and the `OpenAPI` document are generated from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::routing::MethodRouter;

use super::operation::Operation;
use super::respond::with_type;
use super::{
    audit, changes, conflicts, counters, doctor, documents, events, explanations, health, held, log, metrics,
    openapi, parked, rebuilds, rejected, status, streams, tasks, verification,
};
use crate::problem::Problem;
use crate::{Backend, Shared};

/// Returns all operations.
fn operations<S: Backend>() -> Vec<Operation<S>> {
    [
        streams::operations(),
        events::operations(),
        log::operations(),
        documents::operations(),
        explanations::operations(),
        changes::operations(),
        parked::operations(),
        rebuilds::operations(),
        verification::operations(),
        held::operations(),
        conflicts::operations(),
        rejected::operations(),
        tasks::operations(),
        counters::operations(),
        audit::operations(),
        status::operations(),
        health::operations(),
        metrics::operations(),
        doctor::operations(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the routes of all operations, and of their description.
pub(crate) fn router<S: Backend>(shared: Shared<S>) -> Router {
    let operations = operations::<S>();
    let document = Arc::new(openapi::document(&operations).to_string());
    let describe = move || async move { with_type(document.to_string(), "application/json") };
    let mut routes: BTreeMap<&'static str, MethodRouter<Shared<S>>> = BTreeMap::new();
    for operation in operations {
        let (path, route) = operation.into_route(&shared);
        let routes_of_path = routes.remove(path).unwrap_or_default();
        routes.insert(path, routes_of_path.merge(route));
    }
    let not_allowed = || async { Problem::not_allowed("see /openapi.json for the methods of this path") };
    let missing = || async { Problem::missing("no such path; see /openapi.json for all operations") };
    let all = Router::new().route("/openapi.json", axum::routing::get(describe));
    let all = routes.into_iter().fold(all, |all, (path, route)| all.route(path, route.fallback(not_allowed)));
    all.fallback(missing).with_state(shared)
}
