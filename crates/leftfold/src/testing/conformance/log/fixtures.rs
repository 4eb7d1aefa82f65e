//! Values and checks that the cases share.

use crate::event::{Event, Partition, Position, Revision};
use crate::log::Limit;
use crate::store::Store;
use crate::testing::conformance::stream;

pub(super) const ALL: Limit = Limit { events: usize::MAX, bytes: usize::MAX };

pub(super) fn partitions(store: &impl Store) -> Vec<Partition> {
    (0..store.partitions()).map(Partition).collect()
}

/// Returns the whole log, partition by partition.
pub(super) async fn everything(store: &impl Store) -> Vec<Event> {
    let mut events = Vec::new();
    for partition in partitions(store) {
        events.extend(store.read(partition, Position(0), ALL).await.unwrap().events);
    }
    events
}

pub(super) async fn all_of(store: &impl Store, name: &str) -> Vec<Event> {
    store.read_stream(&stream(name), Revision(0), ALL).await.unwrap()
}

pub(super) fn ids(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.id.as_str()).collect()
}
