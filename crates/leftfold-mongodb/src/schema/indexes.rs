//! The indexes, each defined once: for creation, for query hints, and for the doctor's check.
//!
//! Queries name their index. A missing index is then an error instead of a collection scan.

use std::time::Duration;

use bson::{Bson, Document, doc};
use mongodb::error::ErrorKind;
use mongodb::options::IndexOptions;
use mongodb::{Database, IndexModel};

use crate::error::Failure;
use crate::react::closed;
use crate::schema::{CONFLICTS, HELD, SEQUENCES};

/// The events of a stream, by revision.
pub(crate) const STREAM_INDEX: &str = "leftfold_stream_revision";
/// Events by id.
pub(crate) const ID_INDEX: &str = "leftfold_id";
/// Held events by stream and revision.
pub(crate) const HELD_INDEX: &str = "leftfold_held";
/// Streams with held events, by id and by waiting time.
pub(crate) const WAITING_INDEX: &str = "leftfold_waiting";
pub(crate) const OVERDUE_INDEX: &str = "leftfold_overdue";
/// Conflicts without a resolution.
pub(crate) const OPEN_INDEX: &str = "leftfold_open";
/// Tasks that can be due, by reaction and time.
pub(crate) const DUE_INDEX: &str = "leftfold_due";
/// Waiting suspects, by reaction, level and time.
const SUSPECT_INDEX: &str = "leftfold_suspects";
/// Tasks whose documents need a check, by reaction and time.
const CHECK_INDEX: &str = "leftfold_check";
/// Tasks that have ended, by state.
pub(crate) const CLOSED_INDEX: &str = "leftfold_closed";
/// Parked records, and records hidden from readers.
pub(crate) const PARKED_INDEX: &str = "leftfold_parked";
pub(crate) const GONE_INDEX: &str = "leftfold_gone";

/// Returns the unique indexes that the log depends on: they prevent duplicate events.
pub(crate) fn of_the_log() -> [IndexModel; 2] {
    [(doc! { "stream": 1, "revision": -1 }, STREAM_INDEX), (doc! { "id": 1 }, ID_INDEX)].map(
        |(keys, name)| {
            let options = IndexOptions::builder().name(name.to_owned()).unique(true).build();
            IndexModel::builder().keys(keys).options(options).build()
        },
    )
}

/// Returns the indexes of the sequencer, with their collections.
pub(crate) fn of_sequences() -> [(&'static str, IndexModel); 4] {
    let held = doc! { "events": { "$gt": 0 } };
    [
        (HELD, index(HELD_INDEX, doc! { "_id.stream": 1, "_id.revision": 1 }, None)),
        (SEQUENCES, index(WAITING_INDEX, doc! { "_id": 1, "events": 1 }, Some(held.clone()))),
        (SEQUENCES, index(OVERDUE_INDEX, doc! { "since": 1, "_id": 1 }, Some(held))),
        (CONFLICTS, index(OPEN_INDEX, doc! { "_id": 1, "open": 1 }, Some(doc! { "open": true }))),
    ]
}

/// Returns the indexes of tasks.
pub(crate) fn of_tasks() -> [IndexModel; 4] {
    [
        // Due tasks. `open` marks the tasks that can be due.
        index(
            DUE_INDEX,
            doc! { "_id.reaction": 1, "due": 1, "needs": 1, "state": 1, "open": 1 },
            Some(doc! { "open": true }),
        ),
        index(
            SUSPECT_INDEX,
            doc! { "_id.reaction": 1, "suspicion": 1, "due": 1, "needs": 1 },
            Some(doc! { "suspicion": { "$exists": true } }),
        ),
        // Tasks whose documents need a check.
        index(
            CHECK_INDEX,
            doc! { "_id.reaction": 1, "check_at": 1 },
            Some(doc! { "check_at": { "$exists": true } }),
        ),
        // Ended tasks, by state. Open tasks change state often, so the index leaves them out.
        index(
            CLOSED_INDEX,
            doc! { "state": 1, "_id.reaction": 1, "_id.document": 1 },
            Some(doc! { "state": { "$in": closed() } }),
        ),
    ]
}

/// Returns the index by which the server deletes the heartbeats of dead workers after a day.
pub(crate) fn of_workers() -> IndexModel {
    const DAY: Duration = Duration::from_hours(24);
    let options = IndexOptions::builder().name("leftfold_dead".to_owned()).expire_after(DAY).build();
    IndexModel::builder().keys(doc! { "until": 1 }).options(options).build()
}

/// Returns the indexes of a collection's records.
pub(crate) fn of_records() -> [IndexModel; 2] {
    [(PARKED_INDEX, "_fold.parked"), (GONE_INDEX, "_fold.gone")]
        .map(|(name, field)| index(name, doc! { field: 1 }, Some(doc! { field: { "$exists": true } })))
}

fn index(name: &str, keys: Document, partial: Option<Document>) -> IndexModel {
    let mut options = IndexOptions::builder().name(name.to_owned()).build();
    options.partial_filter_expression = partial;
    IndexModel::builder().keys(keys).options(options).build()
}

/// Returns the indexes of a collection, or none if the collection does not exist.
pub(crate) async fn there(db: &Database, collection: &str) -> Result<Vec<IndexModel>, Failure> {
    const NO_COLLECTION: i32 = 26;
    let mut cursor = match db.collection::<Document>(collection).list_indexes().await {
        Ok(cursor) => cursor,
        Err(error) => match &*error.kind {
            ErrorKind::Command(command) if command.code == NO_COLLECTION => return Ok(Vec::new()),
            _ => return Err(error.into()),
        },
    };
    let mut found = Vec::new();
    while cursor.advance().await? {
        found.push(cursor.deserialize_current()?);
    }
    Ok(found)
}

/// Returns whether two indexes are equivalent, regardless of their names.
pub(crate) fn is_same(one: &IndexModel, other: &IndexModel) -> bool {
    let unique =
        |index: &IndexModel| index.options.as_ref().is_some_and(|options| options.unique == Some(true));
    let partial = |index: &IndexModel| index.options.as_ref()?.partial_filter_expression.clone();
    same_keys(&one.keys, &other.keys) && unique(one) == unique(other) && partial(one) == partial(other)
}

/// Returns the name of an index.
pub(crate) fn name(index: &IndexModel) -> &str {
    index.options.as_ref().and_then(|options| options.name.as_deref()).unwrap_or_default()
}

/// Returns the advice for a missing index of the log. Leftfold does not create it by itself,
/// because duplicate events may already exist.
pub(crate) fn make_by_hand(collection: &str, index: &IndexModel) -> String {
    format!(
        "stop all processes that append, and create it: db.getCollection(\"{collection}\").createIndex({}, {{ unique: true, name: \
         \"{}\" }})",
        index.keys,
        name(index)
    )
}

/// Returns whether both name the same fields in the same directions, regardless of the number type.
fn same_keys(one: &Document, other: &Document) -> bool {
    let keys = |document: &Document| -> Vec<(String, Option<i64>)> {
        let direction = |value: &Bson| match value {
            Bson::Int32(number) => Some(i64::from(*number)),
            Bson::Int64(number) => Some(*number),
            #[expect(clippy::cast_possible_truncation, reason = "a direction is 1 or -1")]
            Bson::Double(number) => Some(*number as i64),
            _ => None,
        };
        document.iter().map(|(key, value)| (key.clone(), direction(value))).collect()
    };
    keys(one) == keys(other)
}
