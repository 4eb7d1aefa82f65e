//! Measures deliveries through the sequencer against plain appends of the same events in the same
//! batches.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use leftfold::log::Entry;
use leftfold::sequence::HoldingLimits;
use leftfold::{
    Append, Delivery, Env as _, EventId, EventKind, Expected, IngestAnswer, Json, Policy, Revision,
    Sequencer, Sequences, StreamId, System,
};
use tokio::task::JoinSet;

use crate::catch_up::{Cost, peak_bytes};
use crate::report::{Measurement, Result, float, median};
use crate::subject::{DATA, Subject};

const STREAMS: u64 = 2_000;
const EVENTS: u64 = 200_000;
/// The number of streams with events in flight at the same time.
const OPEN: u64 = 100;
const BATCH: usize = 1_000;
const WINDOW: usize = 1_000;
/// The number of held events, for the first and the second measurement.
const HELD: [u64; 2] = [100_000, 1_000_000];

/// The order in which a feed delivers its events.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    Straight,
    Shuffled,
    /// In order, with three of ten events twice.
    Doubled,
}

pub(crate) async fn measure<S: Subject>(subject: &S, rounds: usize) -> Result<Vec<Measurement>> {
    let cases = [
        ("in order", Order::Straight, Some(0.7)),
        ("shuffled within 1,000", Order::Shuffled, Some(0.4)),
        ("three of ten twice", Order::Doubled, None),
    ];
    let mut measurements = Vec::new();
    let place = "ingest";
    for (name, order, goal) in cases {
        let (mut ours, mut plain) = (Vec::new(), Vec::new());
        for round in 1..=rounds {
            eprintln!("ingest, {name}, round {round} of {rounds} …");
            subject.remove(place).await?;
            plain.push(append(subject.open(place).await?).await?);
            subject.remove(place).await?;
            ours.push(ingest(subject.open(place).await?, order).await?);
        }
        let bench = format!("ingest, {name}, events/s (plain appends)");
        measurements.push(Measurement::more(bench, median(ours), median(plain), goal));
    }
    subject.remove(place).await?;
    let mut peaks = Vec::new();
    for events in HELD {
        eprintln!("ingest, {events} events behind gaps …");
        subject.remove(place).await?;
        drop(subject.open(place).await?);
        peaks.push(in_a_process(&subject.argument(place), events)?.peak_bytes);
    }
    subject.remove(place).await?;
    let bench = format!("peak memory while {} events wait, MB ({} events)", HELD[1], HELD[0]);
    measurements.push(Measurement::less(bench, float(peaks[1]) / 1e6, float(peaks[0]) / 1e6, Some(0.8)));
    Ok(measurements)
}

/// Returns the events of a feed, in order, with `OPEN` streams at a time.
fn feed() -> Result<Vec<Delivery>> {
    let each = EVENTS / STREAMS;
    let mut feed = Vec::new();
    for first in (0..STREAMS).step_by(usize::try_from(OPEN)?) {
        for revision in 1..=each {
            for stream in first..first + OPEN {
                feed.push(delivery(stream, revision)?);
            }
        }
    }
    Ok(feed)
}

fn delivery(stream: u64, revision: u64) -> Result<Delivery> {
    let entry = Entry {
        id: EventId::new(format!("{stream}-{revision}"))?,
        kind: EventKind::new("product-item-added")?,
        time: System.now(),
        data: Json::parse(DATA)?,
        metadata: None,
    };
    Ok(Delivery {
        stream: StreamId::new(format!("cart-{stream:07}"))?,
        revision: Some(Revision(revision)),
        previous: None,
        entry: Arc::new(entry),
    })
}

/// Returns the events per second through the sequencer.
async fn ingest(store: impl Sequences + Clone, order: Order) -> Result<f64> {
    let mut feed = feed()?;
    match order {
        Order::Straight => {}
        // Windows overlap batches, so many events are held until the next batch.
        Order::Shuffled => feed[WINDOW / 2..].chunks_mut(WINDOW).for_each(shuffle),
        Order::Doubled => {
            let twice = |(at, delivery): (usize, Delivery)| {
                [Some(delivery.clone()), (at % 10 < 3).then_some(delivery)]
            };
            feed = feed.into_iter().enumerate().flat_map(twice).flatten().collect();
        }
    }
    let count = feed.len() as u64;
    let sequencer = Sequencer::new(store);
    let begun = Instant::now();
    let mut feed = feed.into_iter();
    loop {
        let batch: Vec<_> = feed.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            break;
        }
        let answers = sequencer.ingest(Policy::Contiguous, batch).await?;
        let is_right = |answer: &IngestAnswer| {
            matches!(answer, IngestAnswer::Appended(_) | IngestAnswer::Held { .. })
                || order == Order::Doubled && matches!(answer, IngestAnswer::Duplicate(_))
        };
        if let Some(wrong) = answers.iter().find(|answer| !is_right(answer)) {
            return Err(format!("a delivery was not appended: {wrong:?}").into());
        }
    }
    let took = begun.elapsed().as_secs_f64();
    let counts = sequencer.counts();
    if counts.appended + counts.released != EVENTS {
        return Err(format!("some deliveries are not in the log: {counts:?}").into());
    }
    Ok(float(count) / took)
}

/// Returns the appended events per second, with all streams of a batch at the same time.
async fn append(store: impl Append + Clone) -> Result<f64> {
    let mut feed = feed()?.into_iter();
    let begun = Instant::now();
    loop {
        let mut streams: Vec<(StreamId, Vec<Entry>)> = Vec::new();
        for delivery in feed.by_ref().take(BATCH) {
            let entry = Arc::unwrap_or_clone(delivery.entry);
            match streams.iter_mut().find(|(stream, _)| *stream == delivery.stream) {
                Some((_, entries)) => entries.push(entry),
                None => streams.push((delivery.stream, vec![entry])),
            }
        }
        if streams.is_empty() {
            return Ok(float(EVENTS) / begun.elapsed().as_secs_f64());
        }
        let mut under_way = JoinSet::new();
        for (stream, entries) in streams {
            let store = store.clone();
            under_way.spawn(async move { store.append(stream, Expected::Any, entries).await });
        }
        while let Some(done) = under_way.join_next().await {
            done??;
        }
    }
}

/// Shuffles in the same way on each call.
fn shuffle(deliveries: &mut [Delivery]) {
    let mut state = 7_u64;
    for at in (1..deliveries.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        deliveries.swap(at, usize::try_from(state >> 33).unwrap_or(0) % (at + 1));
    }
}

/// Holds events in a separate process.
fn in_a_process(store: &str, events: u64) -> Result<Cost> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.args(["hold", store, &events.to_string()]).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("holding events failed: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Delivers `events` events without the first one of each stream, and prints the cost.
pub(crate) async fn hold(store: impl Sequences + Clone, events: u64) -> Result<()> {
    let limits = HoldingLimits { events: 2 * events, ..HoldingLimits::default() };
    let sequencer = Sequencer::with(store, limits, Arc::new(System));
    let begun = Instant::now();
    for revision in 2..events / STREAMS + 2 {
        for first in (0..STREAMS).step_by(BATCH) {
            let batch = (first..first + BATCH as u64).map(|stream| delivery(stream, revision));
            sequencer.ingest(Policy::Contiguous, batch.collect::<Result<_>>()?).await?;
        }
    }
    if sequencer.counts().held != events {
        return Err(format!("some deliveries are not held: {:?}", sequencer.counts()).into());
    }
    let cost = Cost { seconds: begun.elapsed().as_secs_f64(), peak_bytes: peak_bytes()? };
    serde_json::to_writer(std::io::stdout(), &cost)?;
    Ok(())
}
