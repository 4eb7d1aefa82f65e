//! Values and checks that the cases share.

use std::sync::Arc;

use jiff::Timestamp;

use crate::documents::{
    Advance, Checkpoint, Collection, CollectionWrites, Commit, CommitConflict, CommitOutcome, DocumentWrite,
    Header, Parked, Record, Tally,
};
use crate::event::{DocumentId, EventKind, Partition, Position, Revision};
use crate::mark::{Lane, Mark};
use crate::store::Store;
use crate::testing::conformance::{json, stream};

pub(super) fn cart() -> Collection {
    Collection::new("cart").unwrap()
}

pub(super) fn id(text: &str) -> DocumentId {
    DocumentId::new(text).unwrap()
}

pub(super) fn mark(number: u64) -> Mark {
    [(Lane::from(Partition(0)), number)].into_iter().collect()
}

pub(super) fn header(number: u64) -> Header {
    Header { mark: mark(number), parked: None }
}

pub(super) fn parked(number: u64) -> Parked {
    Parked {
        stream: stream("s'1"),
        revision: Revision(number),
        kind: EventKind::new("failed").unwrap(),
        partition: Partition(0),
        position: Position(number),
        error: "it's \"bad\"\n\u{0}\u{1F980}".to_owned(),
        attempts: 3,
        since: Timestamp::from_microsecond(1_700_000_000_000_001).unwrap(),
        from: mark(number - 1),
        through: [(Lane::from(Partition(0)), number), (Lane::named("s \"x\""), u64::MAX)]
            .into_iter()
            .collect(),
        waiting: 2,
        anew: number > 3,
    }
}

/// Creates a document at a mark, without a body if `body` is empty.
pub(super) fn record(name: &str, number: u64, body: &str) -> Record {
    let body = (!body.is_empty()).then(|| json(body));
    Record { id: id(name), header: header(number), body }
}

pub(super) fn insert(record: Record) -> DocumentWrite {
    DocumentWrite { expected: None, record }
}

pub(super) fn update(from: u64, record: Record) -> DocumentWrite {
    DocumentWrite { expected: Some(header(from)), record }
}

pub(super) fn changes(writes: Vec<DocumentWrite>) -> Vec<CollectionWrites> {
    vec![CollectionWrites { collection: cart(), writes }]
}

pub(super) fn step(from: u64, to: u64) -> Advance {
    let checkpoint = |number| if number == 0 { Mark::default() } else { mark(number) };
    let tally = Tally { events: to, ..Tally::default() };
    Advance { projection: cart(), from: checkpoint(from), to: Checkpoint { mark: checkpoint(to), tally } }
}

pub(super) async fn commit(
    store: &impl Store,
    advance: Option<Advance>,
    writes: Vec<DocumentWrite>,
) -> CommitOutcome {
    store.commit(Arc::new(Commit { advance, changes: changes(writes) })).await.unwrap()
}

#[track_caller]
pub(super) fn applied(outcome: &CommitOutcome) {
    assert!(matches!(outcome, CommitOutcome::Applied), "{outcome:?} should be applied");
}

#[track_caller]
pub(super) fn conflict(outcome: CommitOutcome) -> CommitConflict {
    let CommitOutcome::Conflict(mut conflict) = outcome else { panic!("{outcome:?} should be a conflict") };
    conflict.documents.sort();
    conflict
}

/// Returns a conflict of these documents alone.
pub(super) fn of(names: &[&str]) -> CommitConflict {
    CommitConflict { checkpoint: false, documents: names.iter().map(|name| (cart(), id(name))).collect() }
}

pub(super) async fn load(store: &impl Store, names: &[&str]) -> Vec<Record> {
    let ids = names.iter().map(|name| id(name)).collect();
    let mut records = store.load(&cart(), ids).await.unwrap();
    records.sort_by(|a, b| a.id.cmp(&b.id));
    records
}
