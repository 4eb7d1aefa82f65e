//! First catch-up against plain code, and against one guarded transaction per event.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use leftfold::Leftfold;
use leftfold_sqlite::Sqlite;
use serde::{Deserialize, Serialize};
use shopping_cart::CartDetails;
use shopping_cart::workload::Order;

use crate::raw;
use crate::report::{Figure, Result, float, median};
use crate::stores::{copy, fill, remove, runtime};

/// How many events the slow reference is given.
const PER_EVENT: usize = 3_000;

pub(crate) fn measure(directory: &Path, events: u64, rounds: usize, per_event: bool) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (name, order) in [("grouped", Order::Grouped), ("interleaved", Order::Interleaved { open: 5_000 })] {
        let file = directory.join(format!("{name}.db"));
        fill(&file, events, order)?;
        let (mut ours, mut reference, mut slow) = (Vec::new(), Vec::new(), Vec::new());
        for round in 1..=rounds {
            eprintln!("catch-up, {name}, round {round} of {rounds} …");
            let copied = copy(&file, "round.db")?;
            reference.push(float(events) / raw::catch_up(&copied)?.as_secs_f64());
            let copied = copy(&file, "round.db")?;
            ours.push(float(events) / in_a_process(&copied)?.seconds);
            if per_event {
                let copied = copy(&file, "round.db")?;
                slow.push(float(PER_EVENT as u64) / raw::per_event(&copied, PER_EVENT)?.as_secs_f64());
            }
        }
        let ours = median(ours);
        let goal = Some(0.6);
        figures.push(Figure::more(
            format!("catch-up, {name}, events/s (raw)"),
            ours,
            median(reference),
            goal,
        ));
        if per_event {
            let goal = Some(50.0);
            let bench = format!("catch-up, {name}, events/s (one transaction per event)");
            figures.push(Figure::more(bench, ours, median(slow), goal));
        }
        remove(&file)?;
        remove(&directory.join("round.db"))?;
    }
    Ok(figures)
}

/// What a catch-up cost.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    /// The most memory the process ever had.
    pub(crate) peak_bytes: u64,
}

/// Folds a prepared file in a process of its own.
pub(crate) fn in_a_process(file: &Path) -> Result<Cost> {
    let output =
        Command::new(std::env::current_exe()?).arg("catch-up").arg(file).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("the catch-up of {} failed: {}", file.display(), output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

pub(crate) fn child(file: &Path) -> Result<()> {
    let seconds = runtime()?.block_on(fold(file))?;
    let cost = Cost { seconds, peak_bytes: peak_bytes()? };
    serde_json::to_writer(std::io::stdout(), &cost)?;
    Ok(())
}

async fn fold(file: &Path) -> Result<f64> {
    let store = Sqlite::open(file).await?;
    let begun = Instant::now();
    let app = Leftfold::on(store).projection(CartDetails).start().await?;
    app.caught_up().await?;
    let took = begun.elapsed().as_secs_f64();
    app.stop().await;
    Ok(took)
}

fn peak_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM in /proc/self/status")?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes << 10)
}
