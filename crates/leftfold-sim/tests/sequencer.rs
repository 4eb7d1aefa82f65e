//! The sequencer on a store whose writes always have an unknown outcome, or whose reads are always
//! stale.

use std::sync::Arc;

use jiff::Timestamp;
use leftfold::log::{Entry, Limit};
use leftfold::sequence::HoldingLimits;
use leftfold::{
    Delivery, EventId, EventKind, IngestAnswer, Json, Log as _, Policy, Revision, Sequencer, Sequences as _,
    StreamId, System,
};
use leftfold_sim::dice::Dice;
use leftfold_sim::faults::{Fault, Faults};
use leftfold_sim::store::SimStore;

fn stream() -> StreamId {
    StreamId::new("s").expect("a name")
}

fn delivery(revision: u64) -> Delivery {
    let entry = Entry {
        id: EventId::new(format!("s-{revision}")).expect("a name"),
        kind: EventKind::new("noted").expect("a name"),
        time: Timestamp::UNIX_EPOCH,
        data: Json::of(&revision).expect("a number"),
        metadata: None,
    };
    Delivery { stream: stream(), revision: Some(Revision(revision)), previous: None, entry: Arc::new(entry) }
}

/// Returns a store with only this fault, which occurs every time.
fn store(always: Fault) -> SimStore {
    let rates = Fault::ALL.map(|fault| (fault, if fault == always { 1_000 } else { 0 }));
    SimStore::new(1, true, Faults::drawn(&Dice::new(1)).with(&rates), false)
}

async fn revisions(store: &SimStore) -> Vec<u64> {
    let all = Limit { events: usize::MAX, bytes: usize::MAX };
    let events = store.inner().read_stream(&stream(), Revision(0), all).await.expect("events");
    events.iter().map(|event| event.revision.0).collect()
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_written_is_found_out() {
    let store = store(Fault::AppliedUnknown);
    let sequencer = Sequencer::new(store.clone());
    for batch in [vec![1, 5, 6], vec![2, 9]] {
        let batch: Vec<_> = batch.into_iter().map(delivery).collect();
        let answers = sequencer.ingest(Policy::Contiguous, batch).await.expect("answers");
        assert!(answers.iter().all(IngestAnswer::is_final), "{answers:?}");
    }
    assert_eq!(revisions(&store).await, [1, 2]);
    // The revision is skipped once despite retries, and the held events are released.
    sequencer.skip(&stream(), Revision(4), "lost").await.expect("skipped");
    assert_eq!(revisions(&store).await, [1, 2, 5, 6]);
    assert_eq!(store.inner().skipped(&stream()).await.expect("a list").len(), 1);
}

/// The sequencer once remembered the stale reason to reject a delivery, and nothing ever corrected
/// it.
#[tokio::test(start_paused = true)]
async fn what_refuses_is_looked_at_again() {
    let store = store(Fault::Stale);
    let limits = HoldingLimits { stream_events: 2, events: 2, ..HoldingLimits::default() };
    let ingest = async |sequencer: &Sequencer<SimStore>, revisions: &[u64]| {
        let batch = revisions.iter().copied().map(delivery).collect();
        sequencer.ingest(Policy::Contiguous, batch).await.expect("answers")
    };
    let first = Sequencer::with(store.clone(), limits, Arc::new(System));
    for batch in [&[1][..], &[2], &[4, 5]] {
        ingest(&first, batch).await;
    }
    // A new sequencer sees the stream as it was before two events were held.
    let next = Sequencer::with(store.clone(), limits, Arc::new(System));
    for _ in 0..5 {
        ingest(&next, &[6]).await;
        ingest(&next, &[3]).await;
    }
    assert_eq!(revisions(&store).await, [1, 2, 3, 4, 5, 6]);
}
