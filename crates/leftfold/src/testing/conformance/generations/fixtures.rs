//! Values and checks that the cases share.

use std::sync::Arc;

use crate::documents::{
    Advance, Checkpoint, Collection, CollectionWrites, Commit, CommitOutcome, DocumentWrite, Generations,
    Header, Record, Tally,
};
use crate::event::{DocumentId, Partition};
use crate::mark::{Lane, Mark};
use crate::store::Store;
use crate::testing::conformance::json;

pub(super) fn carts() -> Collection {
    Collection::new("carts").unwrap()
}

pub(super) fn id(text: &str) -> DocumentId {
    DocumentId::new(text).unwrap()
}

pub(super) fn mark(number: u64) -> Mark {
    [(Lane::from(Partition(0)), number)].into_iter().collect()
}

pub(super) fn record(name: &str, number: u64, body: &str) -> Record {
    Record { id: id(name), header: Header { mark: mark(number), parked: None }, body: Some(json(body)) }
}

/// Writes documents, and moves the checkpoint from the beginning.
pub(super) async fn fill(store: &impl Store, collection: &Collection, number: u64, records: Vec<Record>) {
    let writes = records.into_iter().map(|record| DocumentWrite { expected: None, record }).collect();
    let to = Checkpoint { mark: mark(number), tally: Tally { events: number, ..Tally::default() } };
    let advance = Some(Advance { projection: collection.clone(), from: Mark::default(), to });
    let changes = vec![CollectionWrites { collection: collection.clone(), writes }];
    let outcome = store.commit(Arc::new(Commit { advance, changes })).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Applied), "{outcome:?}");
}

/// Returns the generations in each step of the first rebuild and switch.
pub(super) fn rebuilt() -> [Generations; 3] {
    let building = Generations::default().building("2").unwrap();
    let switching = building.switching_to(1).unwrap();
    let switched = switching.switched().unwrap();
    [building, switching, switched]
}

/// Stores these generations one after the other.
pub(super) async fn put(store: &impl Store, all: &[Generations]) {
    for next in all {
        assert!(store.put_generations(&carts(), next.revision - 1, next.clone()).await.unwrap());
    }
}
