//! Values and checks that the cases share.

use std::sync::Arc;

use jiff::Timestamp;

use crate::event::{Partition, Revision};
use crate::log::Limit;
use crate::sequence::{
    Delivery, Held, Sequences, Settlement, StreamChange, StreamState, StreamVersion, Totals, Waiting,
};
use crate::store::Store;
use crate::testing::conformance::{entry, stream};

pub(super) const ALL: Limit = Limit { events: usize::MAX, bytes: usize::MAX };
pub(super) const BOUNDLESS: Totals = Totals { events: u64::MAX, bytes: u64::MAX, conflicts: u64::MAX };

pub(super) fn delivery(name: &str, revision: u64) -> Delivery {
    let entry = Arc::new(entry(&format!("{name}-{revision}")));
    Delivery { stream: stream(name), revision: Some(Revision(revision)), previous: None, entry }
}

pub(super) fn time(second: i64) -> Timestamp {
    Timestamp::from_microsecond(second * 1_000_000 + 7).unwrap()
}

pub(super) async fn revisions(store: &impl Store, name: &str) -> Vec<u64> {
    let events = store.read_stream(&stream(name), Revision(0), ALL).await.unwrap();
    events.iter().map(|event| event.revision.0).collect()
}

pub(super) async fn state_of(store: &impl Sequences, name: &str) -> StreamState {
    store.survey(vec![stream(name)]).await.unwrap().streams.remove(&stream(name)).unwrap()
}

pub(super) async fn totals(store: &impl Sequences) -> Totals {
    let survey = store.survey(Vec::new()).await.unwrap();
    survey.totals.values().fold(Totals::default(), |sum, totals| Totals {
        events: sum.events + totals.events,
        bytes: sum.bytes + totals.bytes,
        conflicts: sum.conflicts + totals.conflicts,
    })
}

/// Asserts that nothing is held, and that the totals say so.
pub(super) async fn nothing_is_held(store: &impl Sequences) {
    assert_eq!(store.waiting(None, 10).await.unwrap(), []);
    let Totals { events, bytes, .. } = totals(store).await;
    assert_eq!((events, bytes), (0, 0));
}

pub(super) fn step(name: &str, last: u64, version: Option<u64>) -> StreamChange {
    StreamChange {
        stream: stream(name),
        seen: StreamVersion { last: Revision(last), version },
        append: Vec::new(),
        hold: Vec::new(),
        unhold: Vec::new(),
        waiting: None,
    }
}

pub(super) fn settlement(store: &impl Sequences, steps: Vec<StreamChange>) -> Arc<Settlement> {
    let partition = Partition::of(&steps[0].stream, store.partitions());
    Arc::new(Settlement { partition, steps, bounds: BOUNDLESS, ..Settlement::default() })
}

pub(super) fn waiting(version: u64, held: &Held) -> Waiting {
    Waiting {
        version,
        skipped: Revision(0),
        events: 1,
        bytes: held.bytes(),
        first: held.revision,
        until: held.previous,
        highest: held.revision,
        since: held.since,
        ask_at: held.since,
        asked: 3,
        trouble: Some("no answer".to_owned()),
    }
}

pub(super) fn held(name: &str, revision: u64) -> Held {
    let (revision, previous) = (Revision(revision), Revision(revision - 1));
    Held { stream: stream(name), revision, previous, since: time(5), entry: delivery(name, revision.0).entry }
}
