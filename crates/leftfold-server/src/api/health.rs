//! For those who run it: whether it lives, whether it is ready, and its figures for Prometheus.

use std::fmt::Write as _;

use axum::extract::State;
use jiff::Timestamp;
use leftfold::fold::{Histogram, Status};
use leftfold::{Env as _, System};

use super::{Answer, Operation, meters, with_type};
use crate::access::Scope;
use crate::problem::Problem;
use crate::{Backend, Shared};

pub(super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    vec![
        Operation::get("/healthz", "live", "Whether the process lives", live).answers(
            200,
            "text/plain",
            "It does",
        ),
        Operation::get(
            "/readyz",
            "ready",
            "Whether the store can be reached, and the server is not about to stop",
            ready::<S>,
        )
        .answers(200, "text/plain", "It is")
        .fails(503, "It is not"),
        Operation::get("/metrics", "metrics", "Figures, as Prometheus reads them", metrics::<S>)
            .scope(Scope::Read)
            .answers(200, "text/plain", "Here they are"),
    ]
}

async fn live() -> Answer {
    Ok(with_type("alive\n", "text/plain"))
}

async fn ready<S: Backend>(State(shared): State<Shared<S>>) -> Answer {
    if shared.is_stopping() {
        return Err(Problem::unavailable("the server is about to stop"));
    }
    shared.app.store().heads().await?;
    Ok(with_type("ready\n", "text/plain"))
}

/// Figures as text, each under its name.
#[derive(Default)]
pub(super) struct Figures(String);

impl Figures {
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        // A string takes everything.
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
    folded(&shared, &mut figures).await?;
    sequenced(&shared, &mut figures).await?;
    reacted(&shared, &mut figures).await?;
    Ok(with_type(figures.0, "text/plain; version=0.0.4"))
}

async fn folded<S: Backend>(shared: &Shared<S>, figures: &mut Figures) -> Result<(), Problem> {
    let all = shared.app.status().await?;
    let mut family = |name: &str, kind: &str, help: &str, value: &dyn Fn(&Status) -> f64| {
        figures.family(name, kind, help);
        for status in &all {
            figures.figure(name, &[("projection", &status.projection)], value(status));
        }
    };
    family("leftfold_lag_events", "gauge", "Events in the log that are not folded yet.", &|status| {
        float(status.lag)
    });
    family(
        "leftfold_lag_seconds",
        "gauge",
        "How long ago the first event happened that is not folded yet.",
        &|status| age(status.behind_since),
    );
    family("leftfold_events_folded_total", "counter", "Events that went through.", &|status| {
        float(status.tally.events)
    });
    family("leftfold_events_per_second", "gauge", "Events folded by this process, lately.", &|status| {
        status.events_per_second
    });
    family("leftfold_documents", "gauge", "Documents that readers see.", &|status| float(status.documents));
    family("leftfold_parked_documents", "gauge", "Documents that are set aside.", &|status| {
        float(status.parked_documents)
    });
    family("leftfold_parked_streams", "gauge", "Streams that are set aside.", &|status| {
        float(status.parked_streams)
    });
    family(
        "leftfold_parked_oldest_seconds",
        "gauge",
        "How long the first of what is set aside is.",
        &|status| age(status.parked_since),
    );
    family("leftfold_conflicts_total", "counter", "Writes that were refused by their guards.", &|status| {
        float(status.tally.conflicts)
    });
    family(
        "leftfold_cache_hits_total",
        "counter",
        "Applications of an event whose document was at hand in this process.",
        &|status| float(status.figures.cache_hits),
    );
    family("leftfold_cache_misses_total", "counter", "Documents that this process had to load.", &|status| {
        float(status.figures.cache_misses)
    });
    let mut histogram = |name: &str, help: &str, of: fn(&Status) -> &Histogram| {
        figures.family(name, "histogram", help);
        for status in &all {
            figures.histogram(name, ("projection", &status.projection), of(status));
        }
    };
    histogram("leftfold_commit_seconds", "How long commits of this process took.", |status| {
        &status.figures.commit_seconds
    });
    histogram("leftfold_batch_events", "How many events the batches of this process had.", |status| {
        &status.figures.batch_events
    });
    histogram(
        "leftfold_batch_documents",
        "How many documents the batches of this process wrote.",
        |status| &status.figures.batch_documents,
    );
    Ok(())
}

/// How long something has been so; none if it is not.
fn age(since: Option<Timestamp>) -> f64 {
    since.map_or(0.0, |since| System.now().duration_since(since).as_secs_f64().max(0.0))
}

async fn sequenced<S: Backend>(shared: &Shared<S>, figures: &mut Figures) -> Result<(), Problem> {
    let status = shared.sequencer.status().await?;
    figures.family("leftfold_deliveries_total", "counter", "Deliveries, by what became of them.");
    for (name, number) in status.counts.named() {
        figures.figure("leftfold_deliveries_total", &[("became", name)], number);
    }
    figures.family("leftfold_held_events", "gauge", "Events that came early and wait.");
    figures.figure("leftfold_held_events", &[], status.held);
    figures.family("leftfold_held_oldest_seconds", "gauge", "How long the longest has been waiting.");
    figures.figure("leftfold_held_oldest_seconds", &[], age(status.waits_since));
    figures.family("leftfold_conflicting_events", "gauge", "Events that contradict what is there.");
    figures.figure("leftfold_conflicting_events", &[], status.conflicts);
    figures.family("leftfold_rejected_messages", "gauge", "Messages that are no events.");
    figures.figure("leftfold_rejected_messages", &[], status.rejected);
    Ok(())
}

async fn reacted<S: Backend>(shared: &Shared<S>, figures: &mut Figures) -> Result<(), Problem> {
    let depths = shared.reacting.depths().await?;
    figures.family("leftfold_tasks", "gauge", "Tasks, by reaction and state.");
    for (reaction, depth) in &depths {
        for (state, number) in &depth.states {
            let state = format!("{state:?}").to_lowercase();
            figures.figure("leftfold_tasks", &[("reaction", reaction), ("state", &state)], number);
        }
    }
    figures.family("leftfold_tasks_oldest_due_seconds", "gauge", "How long the oldest task has been due.");
    for (reaction, depth) in &depths {
        figures.figure("leftfold_tasks_oldest_due_seconds", &[("reaction", reaction)], age(depth.oldest_due));
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus knows no other numbers")]
fn float(number: u64) -> f64 {
    number as f64
}
