//! The measurements on SQLite.

use std::time::Instant;

use super::documents::ExternalDocuments as _;
use super::processes;
use super::run::{DOCUMENTS, LATENCIES, PER_SECOND, latencies, throughput};
use crate::report::{Measurement, Result, median, percentile};
use crate::subject::Subject as _;
use crate::subject::sqlite::Files;

/// The goal for tasks per second on SQLite.
const SQLITE_GOAL: f64 = 20_000.0;

pub(crate) async fn on_sqlite(files: &Files, rounds: usize) -> Result<Vec<Measurement>> {
    let place = "react";
    let mut ours = Vec::new();
    for round in 1..=rounds {
        eprintln!("reactions, {DOCUMENTS} documents, round {round} of {rounds} …");
        ours.push(throughput(files, place).await?);
    }
    eprintln!("reactions, {LATENCIES} documents at {PER_SECOND} a second …");
    let took = latencies(files, place).await?;
    let bare = {
        let begun = Instant::now();
        files.write(place, LATENCIES, 1).await?;
        begun.elapsed().as_secs_f64()
    };
    files.remove(place).await?;
    let name = format!("tasks per second ({SQLITE_GOAL})");
    let mut measurements = vec![Measurement::more(name, median(ours), SQLITE_GOAL, Some(1.0))];
    for percent in [50, 99] {
        let name = format!("write → handler, p{percent}, ms (a bare write)");
        measurements.push(Measurement::less(name, percentile(&took, percent) * 1e3, bare * 1e3, None));
    }
    measurements.extend(processes::measure(files, rounds).await?);
    Ok(measurements)
}
