//! The measurements on MongoDB, against bare change streams and mongodash.

use std::time::{Duration, Instant};

use ::mongodb::options::FullDocumentType;
use bson::Document;
use tokio::time::sleep;

use super::documents::ExternalDocuments as _;
use super::peer::Peer;
use super::processes;
use super::run::{DOCUMENTS, LATENCIES, PER_SECOND, latencies, start, throughput};
use crate::report::{Measurement, Result, float, median, percentile};
use crate::subject::Subject as _;
use crate::subject::mongodb::Databases;
use crate::traffic;

const IDLE: Duration = Duration::from_secs(20);
/// The commands per second that mongodash sends when idle. `MOST_PER_TASK` is the limit per task.
const ITS_IDLE: f64 = 1.3;
const MOST_PER_TASK: f64 = 0.2;

pub(crate) async fn on_mongodb(databases: &Databases, rounds: usize) -> Result<Vec<Measurement>> {
    let place = "react";
    let installed = Peer::install().await?;
    let (mut ours, mut bare, mut sent, mut theirs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 1..=rounds {
        eprintln!("reactions, {DOCUMENTS} documents, round {round} of {rounds} …");
        bare.push(bare_throughput(databases, place).await?);
        theirs.push(Peer::measure(databases, installed.path()).await?);
        let before = traffic::commands(databases).await?;
        ours.push(throughput(databases, place).await?);
        let commands = traffic::sent_since(databases, &before, "reactions").await?;
        // The commands that write the documents do not count.
        sent.push(float(commands - DOCUMENTS.div_ceil(1_000)) / float(DOCUMENTS));
    }
    eprintln!("reactions, {LATENCIES} documents at {PER_SECOND} a second …");
    let reference = bare_latencies(databases, place).await?;
    let took = latencies(databases, place).await?;
    eprintln!("reactions, idle …");
    let run = start(databases, place).await?;
    sleep(Duration::from_secs(2)).await;
    let before = traffic::commands(databases).await?;
    sleep(IDLE).await;
    let idle = float(traffic::sent_since(databases, &before, "idle").await?) / IDLE.as_secs_f64();
    run.stop().await;
    databases.remove(place).await?;
    let ours = median(ours);
    let its = median(theirs.iter().map(|peer| peer.tasks_per_second).collect());
    let name = "tasks per second (a bare change stream with one read per document)";
    let mut measurements = vec![
        Measurement::more("tasks per second (mongodash)", ours, its, Some(10.0)),
        Measurement::more(name, ours, median(bare), None),
        Measurement::less("commands per task (0.2)", median(sent), MOST_PER_TASK, Some(1.0)),
    ];
    for percent in [50, 99] {
        let name = format!("write → handler, p{percent}, ms (a bare change stream)");
        let (ours, bare) = (percentile(&took, percent), percentile(&reference, percent));
        measurements.push(Measurement::less(name, ours * 1e3, bare * 1e3, None));
        let its = median(theirs.iter().map(|peer| percentile(&peer.latencies, percent)).collect());
        let name = format!("write → handler, p{percent}, ms (mongodash)");
        measurements.push(Measurement::less(name, ours * 1e3, its, Some(1.0)));
    }
    measurements.push(Measurement::less("commands per second, idle (1.3)", idle, ITS_IDLE, Some(1.0)));
    measurements.extend(processes::measure(databases, rounds).await?);
    Ok(measurements)
}

/// Returns the documents per second of a bare change stream with one read per document.
async fn bare_throughput(databases: &Databases, place: &str) -> Result<f64> {
    databases.remove(place).await?;
    databases.make(place).await?;
    let orders = databases.database(place).collection::<Document>("orders");
    let mut stream = orders.watch().await?;
    let begun = Instant::now();
    databases.write(place, 0, DOCUMENTS).await?;
    let mut received = 0;
    while received < DOCUMENTS {
        let Some(event) = stream.next_if_any().await? else { continue };
        let key = event.document_key.ok_or("a change event has no document key")?;
        orders.find_one(key).await?.ok_or("a changed document does not exist")?;
        received += 1;
    }
    Ok(float(DOCUMENTS) / begun.elapsed().as_secs_f64())
}

/// Returns the times from a write until a change stream returns the document, in seconds, sorted.
async fn bare_latencies(databases: &Databases, place: &str) -> Result<Vec<f64>> {
    databases.remove(place).await?;
    databases.make(place).await?;
    let orders = databases.database(place).collection::<Document>("orders");
    let mut stream = orders.watch().full_document(FullDocumentType::UpdateLookup).await?;
    let listening = tokio::spawn(async move {
        let mut received = Vec::new();
        while (received.len() as u64) < LATENCIES {
            if stream.next_if_any().await?.is_some() {
                received.push(Instant::now());
            }
        }
        Ok::<_, ::mongodb::error::Error>(received)
    });
    let mut tick = tokio::time::interval(Duration::from_millis(1_000 / PER_SECOND));
    let mut written = Vec::new();
    for number in 0..LATENCIES {
        tick.tick().await;
        written.push(Instant::now());
        databases.write(place, number, 1).await?;
    }
    let received = listening.await??;
    let mut took: Vec<_> = written
        .iter()
        .zip(received)
        .map(|(written, received)| received.duration_since(*written).as_secs_f64())
        .collect();
    took.sort_by(f64::total_cmp);
    Ok(took)
}
