//! Metrics for Prometheus.

mod process;
mod store;
mod text;

use axum::extract::State;

use self::text::MetricsText;
use super::health::while_responsive;
use super::{Answer, Operation, with_type};
use crate::access::Scope;
use crate::{Backend, Shared};

pub(super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    vec![
        Operation::get("/metrics", "metrics", "Export metrics for Prometheus", metrics::<S>)
            .scope(Scope::Read)
            .answers(200, "text/plain", "Metrics in Prometheus' text format"),
    ]
}

async fn metrics<S: Backend>(State(shared): State<Shared<S>>) -> Answer {
    let mut text = MetricsText::default();
    process::write(&shared, &mut text);
    shared.readiness.first_verdict().await;
    process::write_readiness(&shared, &mut text);
    // If the store does not respond, leave out the metrics that come from it.
    if let Ok(stored) = while_responsive(&shared, store::read(&shared)).await {
        text.append(&stored);
    }
    Ok(with_type(text.into_string(), "text/plain; version=0.0.4"))
}
