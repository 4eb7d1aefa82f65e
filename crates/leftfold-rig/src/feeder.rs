//! A feed that delivers events twice and out of order, in a process that is killed.
//!
//! Several feeders deliver the same events, each in its own order. The deliveries follow from the
//! seed, the feeder's name and the number of the batch.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use leftfold::log::{Entry, Limit};
use leftfold::{Backoff, Delivery, EventId, IngestAnswer, Policy, Revision, Sequencer, Sequences, StreamId};
use leftfold_sim::dice::Dice;
use leftfold_sim::notes::Happened;
use tokio::time::sleep;

use crate::args::Process;
use crate::failure::Failure;
use crate::messages::{Message, send};
use crate::process::{ended, orders, slower};
use crate::store::{TestedStore, patiently};

/// The number of streams, `f0` and so on. Only feeders write to them.
const STREAMS: u64 = 3;
/// The number of revisions of each stream in a batch.
const EACH: u64 = 4;
const PAUSE: Duration = Duration::from_millis(300);

/// Delivers batches until the input ends, and retries each until it gets a response.
pub(crate) async fn feed<S: TestedStore>(args: &Process) -> Result<(), Failure> {
    let mut orders = orders(args)?;
    let store = patiently::<S, _, _>(|| S::at(&args.place)).await?;
    let sequencer = Sequencer::new(store);
    let name = args.name.bytes().fold(0, |sum, byte| sum * 31 + u64::from(byte));
    for batch in args.from.. {
        let dice = Dice::new(args.seed ^ name.wrapping_add(batch));
        tokio::select! { biased;
            () = ended(&mut orders) => break,
            () = sleep(dice.time(PAUSE) * slower(batch, 100)) => {}
        }
        let mut deliveries = Vec::new();
        for window in [batch.checked_sub(1), Some(batch)].into_iter().flatten() {
            for delivery in window_of(args.seed, window)? {
                // Some deliveries come only in the next batch, and some in both.
                let (late, again) = luck(args.seed ^ name, &delivery);
                if (window == batch && !late) || (window < batch && (late || again)) {
                    deliveries.push(delivery);
                }
            }
        }
        dice.shuffle(&mut deliveries);
        let answers = ingest(&sequencer, &deliveries).await?;
        let mut logged = Vec::new();
        for (delivery, answer) in deliveries.into_iter().zip(answers) {
            match answer {
                IngestAnswer::Appended(bookmark) | IngestAnswer::Duplicate(bookmark) => {
                    logged.push((delivery.entry.id.to_string(), bookmark.to_string()));
                }
                IngestAnswer::Held { .. } => {}
                wrong => {
                    let what =
                        format!("I6: the response to {} of {} is {wrong:?}", delivery.entry.id, args.name);
                    send(&Message::Wrong(what)).map_err(not_said)?;
                }
            }
        }
        send(&Message::Fed { batch, logged }).map_err(not_said)?;
    }
    Ok(())
}

fn not_said(error: std::io::Error) -> Failure {
    Failure::rig("reporting the results of deliveries", error)
}

/// Returns the deliveries of a window, in order.
fn window_of(seed: u64, window: u64) -> Result<Vec<Delivery>, Failure> {
    let mut deliveries = Vec::new();
    for stream in 0..STREAMS {
        for revision in window * EACH + 1..=(window + 1) * EACH {
            // The id has the form of a producer's ids: the first event of an append of one.
            let id = format!("f{stream}-{revision}-0-1");
            let dice = Dice::new(seed ^ (stream << 48) ^ revision);
            let event = Happened::any(&dice, &id)?;
            let entry = Entry {
                id: EventId::new(id)?,
                kind: event.kind,
                time: Timestamp::UNIX_EPOCH,
                data: event.data,
                metadata: event.metadata,
            };
            let stream = StreamId::new(format!("f{stream}"))?;
            let revision = Some(Revision(revision));
            deliveries.push(Delivery { stream, revision, previous: None, entry: Arc::new(entry) });
        }
    }
    Ok(deliveries)
}

/// Returns whether a feeder delivers an event late, and whether it delivers it twice.
fn luck(seed: u64, delivery: &Delivery) -> (bool, bool) {
    let id =
        delivery.entry.id.as_str().bytes().fold(seed, |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
    let dice = Dice::new(id);
    (dice.happens(300), dice.happens(300))
}

async fn ingest<S: Sequences + Clone>(
    sequencer: &Sequencer<S>,
    deliveries: &[Delivery],
) -> leftfold::Result<Vec<IngestAnswer>> {
    let mut delays = Backoff::default().first(Duration::from_millis(20)).limit(12).delays(1);
    loop {
        match sequencer.ingest(Policy::Contiguous, deliveries.to_vec()).await {
            Err(error) if error.is_transient() => match delays.next() {
                Some(delay) => sleep(delay).await,
                None => return Err(error),
            },
            answers => return answers,
        }
    }
}

/// Delivers the missing events after the last kill. Then checks that each event is in the log once
/// and in order, and that no delivery is still held.
///
/// Returns the number of events and the violations.
pub(crate) async fn finish<S: Sequences + Clone>(
    store: &S,
    seed: u64,
    batches: u64,
) -> Result<(u64, Vec<String>), Failure> {
    let sequencer = Sequencer::new(store.clone());
    // A feeder may have delivered a batch without reporting it.
    for window in 0..=batches {
        ingest(&sequencer, &window_of(seed, window)?).await?;
    }
    let (last, mut wrong) = ((batches + 1) * EACH, Vec::new());
    for stream in (0..STREAMS).map(|stream| format!("f{stream}")) {
        let all = Limit { events: usize::MAX, bytes: usize::MAX };
        let events = store.read_stream(&StreamId::new(&stream)?, Revision(0), all).await?;
        let found: Vec<_> = events.iter().map(|event| (event.revision.0, event.id.to_string())).collect();
        let expected: Vec<_> = (1..=last).map(|at| (at, format!("{stream}-{at}-0-1"))).collect();
        if found != expected {
            wrong.push(format!("I7: stream {stream} should have revisions 1 to {last}, and has {found:?}"));
        }
    }
    let status = sequencer.status().await?;
    if (status.held, status.held_bytes, status.conflicts) != (0, 0, 0) {
        wrong.push(format!("I6: deliveries are still held: {status:?}"));
    }
    Ok((STREAMS * last, wrong))
}
