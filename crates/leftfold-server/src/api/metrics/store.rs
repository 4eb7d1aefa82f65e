//! Metrics of projections, deliveries and reactions, which are read from the store.

use jiff::Timestamp;
use leftfold::fold::Histogram;
use leftfold::inspect::ProjectionStatus;
use leftfold::{Env as _, System};

use super::text::MetricsText;
use crate::problem::Problem;
use crate::{Backend, Shared};

/// Returns all metrics of the store.
pub(super) async fn read<S: Backend>(shared: &Shared<S>) -> Result<MetricsText, Problem> {
    let mut text = MetricsText::default();
    projections(shared, &mut text).await?;
    deliveries(shared, &mut text).await?;
    reactions(shared, &mut text).await?;
    Ok(text)
}

async fn projections<S: Backend>(shared: &Shared<S>, text: &mut MetricsText) -> Result<(), Problem> {
    let all = shared.app.status().await?;
    let mut family = |name: &str, kind: &str, help: &str, value: &dyn Fn(&ProjectionStatus) -> f64| {
        text.family(name, kind, help);
        for status in &all {
            text.sample(name, &[("projection", &status.projection)], value(status));
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
        text.family(name, "histogram", help);
        for status in &all {
            text.histogram(name, ("projection", &status.projection), of(status));
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

async fn deliveries<S: Backend>(shared: &Shared<S>, text: &mut MetricsText) -> Result<(), Problem> {
    let status = shared.sequencer.status().await?;
    text.family("leftfold_deliveries_total", "counter", "Deliveries by outcome.");
    for (name, number) in status.counts.named() {
        text.sample("leftfold_deliveries_total", &[("became", name)], number);
    }
    text.family("leftfold_held_events", "gauge", "Early events that wait for missing revisions.");
    text.sample("leftfold_held_events", &[], status.held);
    text.family("leftfold_held_oldest_seconds", "gauge", "Time that the longest-waiting stream has waited.");
    text.sample("leftfold_held_oldest_seconds", &[], age(status.waits_since));
    text.family("leftfold_conflicting_events", "gauge", "Unresolved conflicts.");
    text.sample("leftfold_conflicting_events", &[], status.conflicts);
    text.family("leftfold_rejected_messages", "gauge", "Rejected messages.");
    text.sample("leftfold_rejected_messages", &[], status.rejected);
    Ok(())
}

async fn reactions<S: Backend>(shared: &Shared<S>, text: &mut MetricsText) -> Result<(), Problem> {
    let depths = shared.reacting.depths().await?;
    text.family("leftfold_tasks", "gauge", "Tasks by reaction and state.");
    for (reaction, depth) in &depths {
        for (state, number) in &depth.states {
            let state = format!("{state:?}").to_lowercase();
            text.sample("leftfold_tasks", &[("reaction", reaction), ("state", &state)], number);
        }
    }
    text.family("leftfold_tasks_oldest_due_seconds", "gauge", "Time that the oldest task has been due.");
    for (reaction, depth) in &depths {
        text.sample("leftfold_tasks_oldest_due_seconds", &[("reaction", reaction)], age(depth.oldest_due));
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus knows no other numbers")]
fn float(number: u64) -> f64 {
    number as f64
}
