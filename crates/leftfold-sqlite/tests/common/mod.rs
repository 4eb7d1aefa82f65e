//! Helpers for the tests of this crate.

#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod shop;

use std::path::Path;
use std::time::Duration;

use leftfold::documents::{DocumentWrite, Header, Record};
use leftfold::log::{Entry, Limit};
use leftfold::{
    Collection, DocumentId, Event, EventId, EventKind, Json, Lane, Log, Partition, Position, StreamId,
};
use leftfold_sqlite::Sqlite;

pub(crate) fn stream(name: &str) -> StreamId {
    StreamId::new(name).unwrap()
}

pub(crate) fn cart() -> Collection {
    Collection::new("cart").unwrap()
}

pub(crate) fn entry(id: &str) -> Entry {
    Entry {
        id: EventId::new(id).unwrap(),
        kind: EventKind::new("happened").unwrap(),
        time: "2026-01-02T03:04:05.000006Z".parse().unwrap(),
        data: Json::of(&id).unwrap(),
        metadata: None,
    }
}

/// Builds a new document at position 1 of partition 0.
pub(crate) fn insert(id: &str, body: &str) -> DocumentWrite {
    let mark = [(Lane::from(Partition(0)), 1)].into_iter().collect();
    let record = Record {
        id: DocumentId::new(id).unwrap(),
        header: Header { mark, parked: None },
        body: Some(Json::stored(body)),
    };
    DocumentWrite { expected: None, record }
}

/// Reads the whole log, partition by partition.
pub(crate) async fn everything(store: &Sqlite) -> Vec<Event> {
    let mut events = Vec::new();
    for partition in (0..store.partitions()).map(Partition) {
        let all = Limit { events: usize::MAX, bytes: usize::MAX };
        events.extend(store.read(partition, Position(0), all).await.unwrap().events);
    }
    events
}

/// Drops the last handle and waits until the file is closed, if no other connection has it open.
pub(crate) async fn closed(store: Sqlite) {
    let path = store.path().to_owned();
    drop(store);
    settled(&path).await;
}

/// Waits until everything is in the file itself. Gives up if another connection keeps it open.
pub(crate) async fn settled(path: &Path) {
    let log = path.with_extension("db-wal");
    for _ in 0..500 {
        if !log.exists() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
