//! Measures the first catch-up against plain code, and against one guarded write per event.

use std::process::{Command, Stdio};
use std::time::Instant;

use leftfold::Leftfold;
use serde::{Deserialize, Serialize};
use shopping_cart::CartDetails;
use shopping_cart::workload::Order;

use crate::report::{Measurement, Result, float, median};
use crate::stores::fill;
use crate::subject::{OneByOne, Subject};

pub(crate) async fn measure<S: Subject>(
    subject: &S,
    events: u64,
    rounds: usize,
    per_event: bool,
) -> Result<Vec<Measurement>> {
    let mut measurements = Vec::new();
    let ways: &[OneByOne] = if per_event { S::ONE_BY_ONE } else { &[] };
    for (name, order) in [("grouped", Order::Grouped), ("interleaved", Order::Interleaved { open: 5_000 })] {
        subject.remove(name).await?;
        fill(subject, name, events, order).await?;
        let (mut ours, mut reference) = (Vec::new(), Vec::new());
        let mut slow = vec![Vec::new(); ways.len()];
        for round in 1..=rounds {
            eprintln!("catch-up, {name}, round {round} of {rounds} …");
            let place = subject.unfolded(name).await?;
            reference.push(float(events) / subject.raw_catch_up(&place).await?.as_secs_f64());
            let place = subject.unfolded(name).await?;
            ours.push(float(events) / in_a_process(&subject.argument(&place))?.seconds);
            for (way, slow) in ways.iter().zip(&mut slow) {
                let place = subject.unfolded(name).await?;
                let took = subject.one_by_one(&place, way).await?;
                slow.push(float(way.events as u64) / took.as_secs_f64());
            }
        }
        let ours = median(ours);
        let bench = |with: &str| format!("catch-up, {name}, events/s ({with})");
        measurements.push(Measurement::more(bench("raw"), ours, median(reference), Some(S::RAW_GOAL)));
        for (way, slow) in ways.iter().zip(slow) {
            measurements.push(Measurement::more(bench(way.name), ours, median(slow), Some(way.goal)));
        }
        let place = subject.unfolded(name).await?;
        subject.remove(&place).await?;
        subject.remove(name).await?;
    }
    Ok(measurements)
}

/// The time and memory that a catch-up took.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    /// The peak memory of the process.
    pub(crate) peak_bytes: u64,
}

/// Folds a prepared log in a separate process.
pub(crate) fn in_a_process(store: &str) -> Result<Cost> {
    let output =
        Command::new(std::env::current_exe()?).args(["catch-up", store]).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("a catch-up failed: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Folds a log that another process has prepared, and prints the cost.
pub(crate) async fn child(store: &str) -> Result<()> {
    let seconds = if store.starts_with("mongodb") {
        fold(leftfold_mongodb::Mongo::connect(store).await?).await?
    } else {
        fold(leftfold_sqlite::Sqlite::open(store).await?).await?
    };
    let cost = Cost { seconds, peak_bytes: peak_bytes()? };
    serde_json::to_writer(std::io::stdout(), &cost)?;
    Ok(())
}

async fn fold(store: impl leftfold::Store) -> Result<f64> {
    let begun = Instant::now();
    let app = Leftfold::on(store).projection(CartDetails).start().await?;
    app.caught_up().await?;
    let took = begun.elapsed().as_secs_f64();
    app.stop().await;
    Ok(took)
}

pub(crate) fn peak_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM in /proc/self/status")?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes << 10)
}
