//! Liveness, readiness and Prometheus metrics for operators.

use std::fmt::Write as _;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use jiff::Timestamp;
use leftfold::fold::Histogram;
use leftfold::inspect::ProjectionStatus;
use leftfold::{Env as _, System};
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep;

use super::extract::Params;
use super::{Answer, Operation, meters, with_type};
use crate::access::{Scope, is_known};
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
        Operation::get("/metrics", "metrics", "Export metrics for Prometheus", metrics::<S>)
            .scope(Scope::Read)
            .answers(200, "text/plain", "Metrics in Prometheus' text format"),
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
    Params(asked): Params<Ready>,
    headers: HeaderMap,
) -> Answer {
    let tells = is_known(&shared.tokens, &headers);
    let hidden = "ask with a token for the reasons";
    if shared.is_stopping() {
        return Err(Problem::not_ready("the server is about to stop"));
    }
    shared.readiness.first_verdict().await;
    if let Some(reason) = shared.readiness.refusal() {
        return Err(Problem::not_ready(if tells { &reason } else { hidden }).retry_after(1));
    }
    let troubles = shared.readiness.troubles();
    if troubles.is_empty() {
        return Ok(with_type("ready\n", "text/plain"));
    }
    if asked.is_strict() {
        let problem = Problem::degraded(if tells { "see the reasons" } else { hidden });
        return Err(if tells { problem.with("reasons", json!(troubles)) } else { problem });
    }
    let mut said = "degraded\n".to_owned();
    if tells {
        for trouble in troubles {
            // Writing to a string never fails.
            let _ = writeln!(said, "{trouble}");
        }
    }
    Ok(with_type(said, "text/plain"))
}

/// Runs a request to the store, unless the store is found unresponsive.
pub(super) async fn answered<S: Backend, T>(
    shared: &Shared<S>,
    asking: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    let refused = async {
        let reason = shared.readiness.refused().await;
        sleep(LAST_CHANCE).await;
        reason
    };
    tokio::select! { biased;
        answer = asking => answer,
        reason = refused => Err(Problem::unavailable(reason).retry_after(1)),
    }
}

/// Metrics in Prometheus' text format.
#[derive(Default)]
pub(super) struct Figures(String);

impl Figures {
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string never fails.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    pub(super) fn figure(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<_> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    pub(super) fn histogram(&mut self, name: &str, label: (&str, &str), histogram: &Histogram) {
        let bucket = format!("{name}_bucket");
        for (bound, count) in histogram.buckets() {
            self.figure(&bucket, &[label, ("le", &bound.to_string())], count);
        }
        self.figure(&bucket, &[label, ("le", "+Inf")], histogram.count());
        self.figure(&format!("{name}_sum"), &[label], histogram.sum());
        self.figure(&format!("{name}_count"), &[label], histogram.count());
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

async fn metrics<S: Backend>(State(shared): State<Shared<S>>) -> Answer {
    let mut figures = Figures::default();
    meters::show(&shared, &mut figures);
    shared.readiness.first_verdict().await;
    readiness(&shared, &mut figures);
    // If the store does not respond, leave out the metrics that come from it.
    let kept = async {
        let mut kept = Figures::default();
        folded(&shared, &mut kept).await?;
        sequenced(&shared, &mut kept).await?;
        reacted(&shared, &mut kept).await?;
        Ok(kept)
    };
    if let Ok(kept) = answered(&shared, kept).await {
        figures.0.push_str(&kept.0);
    }
    Ok(with_type(figures.0, "text/plain; version=0.0.4"))
}

/// Writes whether requests can be served, and which parts do not work although they can.
fn readiness<S: Backend>(shared: &Shared<S>, figures: &mut Figures) {
    let is_ready = !shared.is_stopping() && shared.readiness.refusal().is_none();
    figures.family("leftfold_ready", "gauge", "1 if the server can serve requests, else 0.");
    figures.figure("leftfold_ready", &[], u8::from(is_ready));
    let troubles = shared.readiness.troubles();
    figures.family("leftfold_degraded", "gauge", "1 if a projection or a feed does not work, else 0.");
    figures.figure("leftfold_degraded", &[], u8::from(!troubles.is_empty()));
    figures.family("leftfold_trouble", "gauge", "Projections and feeds that do not work, by kind and name.");
    for trouble in troubles {
        let labels = [("kind", trouble.kind.name()), ("name", trouble.name.as_str())];
        figures.figure("leftfold_trouble", &labels, 1);
    }
}

async fn folded<S: Backend>(shared: &Shared<S>, figures: &mut Figures) -> Result<(), Problem> {
    let all = shared.app.status().await?;
    let mut family = |name: &str, kind: &str, help: &str, value: &dyn Fn(&ProjectionStatus) -> f64| {
        figures.family(name, kind, help);
        for status in &all {
            figures.figure(name, &[("projection", &status.projection)], value(status));
        }
    };
    family("leftfold_lag_events", "gauge", "Events in the log that are not folded yet.", &|status| {
        float(status.lag)
    });
    family("leftfold_lag_seconds", "gauge", "Age of the oldest event that is not folded yet.", &|status| {
        age(status.behind_since)
    });
    family(
        "leftfold_events_folded_total",
        "counter",
        "Events that the projection has processed.",
        &|status| float(status.tally.events),
    );
    family("leftfold_events_per_second", "gauge", "Recent events per second of this process.", &|status| {
        status.events_per_second
    });
    family("leftfold_documents", "gauge", "Documents that readers see.", &|status| float(status.documents));
    family("leftfold_parked_documents", "gauge", "Parked documents.", &|status| {
        float(status.parked_documents)
    });
    family("leftfold_parked_streams", "gauge", "Parked streams.", &|status| float(status.parked_streams));
    family(
        "leftfold_parked_oldest_seconds",
        "gauge",
        "Time since the oldest parked document or stream was parked.",
        &|status| age(status.parked_since),
    );
    family(
        "leftfold_conflicts_total",
        "counter",
        "Documents folded again because another writer changed them.",
        &|status| float(status.tally.conflicts),
    );
    family(
        "leftfold_cache_hits_total",
        "counter",
        "Events whose document was in the cache of this process.",
        &|status| float(status.figures.cache_hits),
    );
    family(
        "leftfold_cache_misses_total",
        "counter",
        "Documents that this process loaded from the store.",
        &|status| float(status.figures.cache_misses),
    );
    let mut histogram = |name: &str, help: &str, of: fn(&ProjectionStatus) -> &Histogram| {
        figures.family(name, "histogram", help);
        for status in &all {
            figures.histogram(name, ("projection", &status.projection), of(status));
        }
    };
    histogram("leftfold_commit_seconds", "Duration of commits of this process.", |status| {
        &status.figures.commit_seconds
    });
    histogram("leftfold_batch_events", "Events per batch of this process.", |status| {
        &status.figures.batch_events
    });
    histogram("leftfold_batch_documents", "Documents written per batch of this process.", |status| {
        &status.figures.batch_documents
    });
    Ok(())
}

/// Returns the age in seconds, or 0 without a start.
fn age(since: Option<Timestamp>) -> f64 {
    since.map_or(0.0, |since| System.now().duration_since(since).as_secs_f64().max(0.0))
}

async fn sequenced<S: Backend>(shared: &Shared<S>, figures: &mut Figures) -> Result<(), Problem> {
    let status = shared.sequencer.status().await?;
    figures.family("leftfold_deliveries_total", "counter", "Deliveries by outcome.");
    for (name, number) in status.counts.named() {
        figures.figure("leftfold_deliveries_total", &[("became", name)], number);
    }
    figures.family("leftfold_held_events", "gauge", "Early events that wait for missing revisions.");
    figures.figure("leftfold_held_events", &[], status.held);
    figures.family(
        "leftfold_held_oldest_seconds",
        "gauge",
        "Time that the longest-waiting stream has waited.",
    );
    figures.figure("leftfold_held_oldest_seconds", &[], age(status.waits_since));
    figures.family("leftfold_conflicting_events", "gauge", "Unresolved conflicts.");
    figures.figure("leftfold_conflicting_events", &[], status.conflicts);
    figures.family("leftfold_rejected_messages", "gauge", "Rejected messages.");
    figures.figure("leftfold_rejected_messages", &[], status.rejected);
    Ok(())
}

async fn reacted<S: Backend>(shared: &Shared<S>, figures: &mut Figures) -> Result<(), Problem> {
    let depths = shared.reacting.depths().await?;
    figures.family("leftfold_tasks", "gauge", "Tasks by reaction and state.");
    for (reaction, depth) in &depths {
        for (state, number) in &depth.states {
            let state = format!("{state:?}").to_lowercase();
            figures.figure("leftfold_tasks", &[("reaction", reaction), ("state", &state)], number);
        }
    }
    figures.family("leftfold_tasks_oldest_due_seconds", "gauge", "Time that the oldest task has been due.");
    for (reaction, depth) in &depths {
        figures.figure("leftfold_tasks_oldest_due_seconds", &[("reaction", reaction)], age(depth.oldest_due));
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus knows no other numbers")]
fn float(number: u64) -> f64 {
    number as f64
}
