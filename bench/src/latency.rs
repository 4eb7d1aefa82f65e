//! Measures the time from an append until its document is visible, at a modest rate, against the
//! unavoidable part.

use std::time::{Duration, Instant};

use leftfold::{Leftfold, Store};
use shopping_cart::{CartDetails, CartEvent};
use tokio::task::JoinSet;

use crate::report::{Measurement, Result, percentile};
use crate::subject::Subject;

pub(crate) const EVENTS: usize = 2_000;
const PER_SECOND: u64 = 200;

pub(crate) async fn measure<S: Subject>(subject: &S) -> Result<Vec<Measurement>> {
    eprintln!("latency, {EVENTS} events at {PER_SECOND} a second …");
    let place = "latency";
    subject.remove(place).await?;
    let reference = sorted(subject.bare_latencies(place, EVENTS, pace()).await?);
    subject.remove(place).await?;
    let store = subject.open(place).await?;
    let ours = sorted(latencies(&store, &store).await?);
    drop(store);
    let mut measurements = measurements("append → visible", S::BARE, &ours, &reference);
    if S::IS_SHARED {
        subject.remove(place).await?;
        let (worker, caller) = (subject.open(place).await?, subject.open(place).await?);
        let apart = sorted(latencies(&worker, &caller).await?);
        measurements.extend(self::measurements(
            "append → visible, worker elsewhere",
            S::BARE,
            &apart,
            &reference,
        ));
    }
    subject.remove(place).await?;
    Ok(measurements)
}

fn measurements(bench: &str, bare: &str, ours: &[f64], reference: &[f64]) -> Vec<Measurement> {
    let measurement = |percent| {
        let (ours, reference) = (percentile(ours, percent) * 1e3, percentile(reference, percent) * 1e3);
        Measurement::less(format!("{bench}, p{percent}, ms ({bare})"), ours, reference, None)
    };
    vec![measurement(50), measurement(99)]
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn pace() -> Duration {
    Duration::from_millis(1_000 / PER_SECOND)
}

/// Appends and reads through one handle of a store while a worker folds through another, or through
/// the same. The rate is fixed: a slow operation does not delay the next.
pub(crate) async fn latencies<S: Store>(worker: &S, caller: &S) -> Result<Vec<f64>> {
    let worker = Leftfold::on(worker.clone()).projection(CartDetails).start().await?;
    let app = Leftfold::on(caller.clone()).projection(CartDetails).open().await?;
    let mut tick = tokio::time::interval(pace());
    let mut under_way: JoinSet<Result<f64>> = JoinSet::new();
    for number in 0..EVENTS {
        tick.tick().await;
        let app = app.clone();
        under_way.spawn(async move {
            let stream = format!("cart-{number:07}");
            let begun = Instant::now();
            let bookmark =
                app.append(&stream, [CartEvent::ShoppingCartOpened { client_id: "ann".to_owned() }]).await?;
            app.get(CartDetails, &stream)
                .at_least(bookmark)
                .await?
                .ok_or("the document of an appended event does not exist")?;
            Ok(begun.elapsed().as_secs_f64())
        });
    }
    let mut took = Vec::with_capacity(EVENTS);
    while let Some(done) = under_way.join_next().await {
        took.push(done??);
    }
    worker.stop().await;
    Ok(took)
}
