//! Measures HTTP: events through the server against the library, and document reads against a bare
//! handler.

mod client;
pub(crate) mod serving;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use leftfold::log::Entry;
use leftfold::{
    Collection, Delivery, Documents as _, EventId, EventKind, IngestAnswer, Json, Leftfold, Policy,
    Projection as _, Revision, Sequencer, Sequences, StreamId,
};
use shopping_cart::CartDetails;
use shopping_cart::workload::Order;
use tokio::task::JoinSet;

use self::client::{Load, run};
use self::serving::{Role, Server};
use crate::report::{Measurement, Result, float, median};
use crate::stores::fill;
use crate::subject::{DATA, Subject};

/// The number of clients with one connection each, and of callers of the library.
const CLIENTS: u64 = 8;
const EVENTS: u64 = 200_000;
const STREAMS: u64 = 2_000;
/// The number of a client's streams with events in flight at the same time.
const OPEN: u64 = 50;
const BATCH: usize = 100;
const TIME: &str = "2026-01-01T00:00:00Z";
const SOURCE: &str = r#"{"source":"/shop"}"#;
/// The number of documents, of ten events each. `READS` is the number of reads.
const DOCUMENTS: u64 = 2_000;
const READS: u64 = 100_000;
/// The goal for reads per second.
const READS_GOAL: f64 = 10_000.0;

pub(crate) async fn measure<S: Subject>(subject: &S, rounds: usize) -> Result<Vec<Measurement>> {
    let mut measurements = vec![ingest(subject, rounds).await?];
    measurements.extend(read(subject, rounds).await?);
    Ok(measurements)
}

async fn ingest<S: Subject>(subject: &S, rounds: usize) -> Result<Measurement> {
    let place = "http";
    let requests: Vec<_> = (0..CLIENTS).map(|client| posts(&feed(client))).collect();
    let requests = Arc::new(requests);
    let (mut ours, mut library) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        eprintln!("HTTP, ingest, round {round} of {rounds} …");
        subject.remove(place).await?;
        let store = subject.open(place).await?;
        library.push(call(&store).await?);
        subject.close(store).await;
        subject.remove(place).await?;
        drop(subject.open(place).await?);
        let server = Server::start(&subject.argument(place), Role::Events).await?;
        let load = Load { requests: Arc::clone(&requests), repeat: 1, expected: Some((APPENDED, BATCH)) };
        ours.push(float(EVENTS) / run(server.address, load).await?.as_secs_f64());
        server.stop().await?;
    }
    subject.remove(place).await?;
    Ok(Measurement::more(
        "ingest over HTTP, events/s (the library)",
        median(ours),
        median(library),
        Some(0.5),
    ))
}

async fn read<S: Subject>(subject: &S, rounds: usize) -> Result<Vec<Measurement>> {
    let place = "http-reads";
    subject.remove(place).await?;
    fill(subject, place, DOCUMENTS * 10, Order::Grouped).await?;
    let store = subject.open(place).await?;
    let app = Leftfold::on(store.clone()).projection(CartDetails).start().await?;
    app.caught_up().await?;
    let documents =
        app.store().scan(&Collection::new(CartDetails.name())?, None, usize::try_from(DOCUMENTS)?).await?;
    app.stop().await;
    drop(app);
    subject.close(store).await;
    let bytes = documents.iter().filter_map(|record| Some(record.body.as_ref()?.as_str().len()));
    let bytes = bytes.sum::<usize>() / documents.len().max(1);
    let get = |id: &str| request("GET", &format!("/collections/cart_details/documents/{id}"), None);
    let all: Vec<_> = documents.iter().map(|record| get(record.id.as_str())).collect();
    let share = all.len() / usize::try_from(CLIENTS)?;
    let requests: Arc<Vec<_>> = Arc::new(all.chunks_exact(share).map(<[_]>::to_vec).collect());
    let repeat = usize::try_from(READS / CLIENTS)? / share;
    let reads = float((repeat * share) as u64 * CLIENTS);
    let load = || Load { requests: Arc::clone(&requests), repeat, expected: None };
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        eprintln!("HTTP, reads, round {round} of {rounds} …");
        for (measurements, role) in [(&mut bare, Role::Bare), (&mut ours, Role::Documents)] {
            let argument = if role == Role::Bare { bytes.to_string() } else { subject.argument(place) };
            let server = Server::start(&argument, role).await?;
            measurements.push(reads / run(server.address, load()).await?.as_secs_f64());
            server.stop().await?;
        }
    }
    subject.remove(place).await?;
    let (ours, bare) = (median(ours), median(bare));
    let name = |with: &str| format!("documents of {bytes} bytes read over HTTP, per second ({with})");
    Ok(vec![
        Measurement::more(name("10000"), ours, READS_GOAL, Some(1.0)),
        Measurement::more(name("a bare axum handler"), ours, bare, None),
    ])
}

/// The part of a response that says that a delivery is in the log.
const APPENDED: &str = r#""answer":"appended""#;

/// Returns the streams and revisions that a client delivers, in order.
fn feed(client: u64) -> Vec<(u64, u64)> {
    let (streams, each) = (STREAMS / CLIENTS, EVENTS / STREAMS);
    let mut feed = Vec::new();
    for group in 0..streams / OPEN {
        let first = client * streams + group * OPEN;
        for revision in 1..=each {
            feed.extend((first..first + OPEN).map(|stream| (stream, revision)));
        }
    }
    feed
}

fn posts(feed: &[(u64, u64)]) -> Vec<Vec<u8>> {
    let post = |batch: &[(u64, u64)]| {
        let events: Vec<_> = batch.iter().map(|(stream, revision)| cloud_event(*stream, *revision)).collect();
        request("POST", "/events", Some(&format!("[{}]", events.join(","))))
    };
    feed.chunks(BATCH).map(post).collect()
}

fn cloud_event(stream: u64, revision: u64) -> String {
    let attributes = format!(
        r#""specversion":"1.0","id":"{stream}-{revision}","source":"/shop","subject":"cart-{stream:07}""#
    );
    let event =
        format!(r#""type":"product-item-added","time":"{TIME}","sequence":"{revision}","data":{DATA}"#);
    format!("{{{attributes},{event}}}")
}

fn request(method: &str, path: &str, batch: Option<&str>) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
    if let Some(batch) = batch {
        let length = batch.len();
        // Writing to a string never fails.
        let _ =
            write!(text, "content-type: application/cloudevents-batch+json\r\ncontent-length: {length}\r\n");
    }
    text.push_str("\r\n");
    text.push_str(batch.unwrap_or_default());
    text.into_bytes()
}

/// Returns the delivery that the server creates from such an event.
fn delivery(stream: u64, revision: u64) -> Result<Delivery> {
    let entry = Entry {
        id: EventId::new(format!("{stream}-{revision}"))?,
        kind: EventKind::new("product-item-added")?,
        time: TIME.parse()?,
        data: Json::parse(DATA)?,
        metadata: Some(Json::parse(SOURCE)?),
    };
    Ok(Delivery {
        stream: StreamId::new(format!("cart-{stream:07}"))?,
        revision: Some(Revision(revision)),
        previous: None,
        entry: Arc::new(entry),
    })
}

/// Returns the events per second when callers of the library deliver the same batches.
async fn call(store: &(impl Sequences + Clone)) -> Result<f64> {
    let sequencer = Sequencer::new(store.clone());
    let mut feeds = Vec::new();
    for client in 0..CLIENTS {
        let deliveries = feed(client).into_iter().map(|(stream, revision)| delivery(stream, revision));
        feeds.push(deliveries.collect::<Result<Vec<_>>>()?);
    }
    let begun = Instant::now();
    let mut callers: JoinSet<Result<()>> = JoinSet::new();
    for feed in feeds {
        let sequencer = sequencer.clone();
        callers.spawn(async move {
            let mut feed = feed.into_iter();
            loop {
                let batch: Vec<_> = feed.by_ref().take(BATCH).collect();
                if batch.is_empty() {
                    return Ok(());
                }
                let answers = sequencer.ingest(Policy::Contiguous, batch).await?;
                if let Some(wrong) =
                    answers.iter().find(|answer| !matches!(answer, IngestAnswer::Appended(_)))
                {
                    return Err(format!("a delivery was not appended: {wrong:?}").into());
                }
            }
        });
    }
    while let Some(done) = callers.join_next().await {
        done??;
    }
    Ok(float(EVENTS) / begun.elapsed().as_secs_f64())
}
