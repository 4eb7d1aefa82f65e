//! Measures appends of many concurrent callers against one commit per call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use leftfold::{Expected, Json, Leftfold, NewEvent, Store};
use tokio::task::JoinSet;

use crate::report::{Measurement, Result, float, median};
use crate::subject::{DATA, Subject};

pub(crate) const CALLERS: u64 = 64;
const EACH: u64 = 2_000;
const ALONE: u64 = 4_000;

pub(crate) async fn measure<S: Subject>(subject: &S, rounds: usize) -> Result<Vec<Measurement>> {
    let (mut ours, mut alone, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    let place = "append";
    for round in 1..=rounds {
        eprintln!("append, round {round} of {rounds} …");
        subject.remove(place).await?;
        plain.push(subject.inserts(place).await?);
        subject.remove(place).await?;
        alone.push(per_second(subject.open(place).await?, 1, ALONE).await?);
        subject.remove(place).await?;
        ours.push(per_second(subject.open(place).await?, CALLERS, EACH).await?);
    }
    subject.remove(place).await?;
    let (ours, alone, plain) = (median(ours), median(alone), median(plain));
    let bench = |with: &str| format!("append, {CALLERS} callers of one event each, events/s ({with})");
    let with_alone = bench("one caller, so one commit per call");
    Ok(vec![
        Measurement::more(with_alone, ours, alone, S::INSERTS.alone_goal),
        Measurement::more(bench(S::INSERTS.name), ours, plain, S::INSERTS.goal),
    ])
}

/// Returns the events per second that `callers` append, each with one event in flight.
async fn per_second(store: impl Store, callers: u64, each: u64) -> Result<f64> {
    let app = Leftfold::on(store).open().await?;
    let data = Json::parse(DATA)?;
    // Each append creates a new cart, as in the references.
    let next = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    for _ in 0..callers {
        let (app, data, next) = (app.clone(), data.clone(), next.clone());
        tasks.spawn(async move {
            for _ in 0..each {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let event = NewEvent::new("product-item-added", data.clone())?;
                app.append_events(&format!("cart-{number:07}"), Expected::Any, vec![event]).await?;
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(float(callers * each) / begun.elapsed().as_secs_f64())
}
