//! The transaction of an append.
//!
//! It assigns the positions 1, 2, 3 … without gaps, so commit order is position order. A reader
//! never misses an event that appears later at a lower position.

use leftfold::log::{Entry, judge_append};
use leftfold::{
    AppendError, Appended, Bookmark, Error, Event, Expected, Json, Partition, Position, Result, Revision,
    StreamId,
};
use rusqlite::{Connection, params};

use crate::connection::{Ran, Tx, Work};
use crate::error::Failure;
use crate::log::{BY_ID, LAST_POSITION, event, position_of, revision, row_of};

pub(crate) const INSERT: &str =
    "INSERT INTO leftfold_events VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (id) DO NOTHING";

pub(super) struct AppendWork {
    pub(super) stream: StreamId,
    pub(super) partition: Partition,
    pub(super) expected: Expected,
    pub(super) entries: Vec<Entry>,
}

impl Work for AppendWork {
    type Answer = Result<Appended, AppendError>;

    const DOING: &'static str = "append to";

    fn bytes(&self) -> usize {
        self.entries
            .iter()
            .map(|entry| size(&entry.data) + entry.metadata.as_ref().map_or(0, size) + 128)
            .sum()
    }

    fn has_steps(&self) -> bool {
        self.entries.len() > 1
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let current = revision(&mut tx.append()?.revision, &self.stream)?;
        // A single acceptable event needs no lookup of its id: the unique index reports a
        // duplicate.
        let is_acceptable = self.entries.len() == 1
            && match self.expected {
                Expected::Any => true,
                Expected::Revision(expected) => expected == current,
            };
        if is_acceptable && let Some(bookmark) = self.insert(tx, current)? {
            return Ok(Ran::Keep(Ok(Appended::New(bookmark))));
        }
        let stored = self.stored(tx.connection)?;
        match judge_append(&self.stream, self.expected, &self.entries, &stored, current) {
            Ok(Some(bookmark)) => return Ok(Ran::Keep(Ok(Appended::Duplicate(bookmark)))),
            Err(error) => return Ok(Ran::Keep(Err(error))),
            Ok(None) => {}
        }
        match self.insert(tx, current)? {
            Some(bookmark) => Ok(Ran::Keep(Ok(Appended::New(bookmark)))),
            None => Err(Failure::damaged("the index of event ids lists an id that no event has")),
        }
    }

    fn failed(error: Error) -> Self::Answer {
        Err(AppendError::Store(error))
    }
}

impl AppendWork {
    /// Appends the events to their stream and partition. Returns `None` if an id is taken; the
    /// caller then undoes the events inserted before it.
    fn insert(&self, tx: &mut Tx<'_>, current: Revision) -> Result<Option<Bookmark>, Failure> {
        let mut row = tx.head(self.partition)?;
        let mut number = i64::try_from(current.0).map_err(|error| Failure::damaged(error.to_string()))?;
        for entry in &self.entries {
            number += 1;
            if !insert(tx, self.partition, &mut row, &self.stream, number, entry)? {
                return Ok(None);
            }
            point!("event-inserted");
        }
        point!("events-inserted");
        tx.grow(self.partition, row);
        Ok(Some(Bookmark {
            stream: self.stream.clone(),
            revision: Revision(number.unsigned_abs()),
            partition: self.partition,
            position: Position(position_of(row)),
        }))
    }

    /// Returns the stored event with the id of each entry. The list is empty if there are none.
    fn stored(&self, connection: &Connection) -> Result<Vec<Option<Event>>, Failure> {
        let mut statement = connection.prepare_cached(BY_ID)?;
        let mut stored = Vec::new();
        for (at, entry) in self.entries.iter().enumerate() {
            let mut rows = statement.query([entry.id.as_str()])?;
            if let Some(row) = rows.next()? {
                stored.resize(self.entries.len(), None);
                stored[at] = Some(event(row)?);
            }
        }
        Ok(stored)
    }
}

/// Inserts an event into the next row, and advances `row`. Returns whether its id was free.
pub(crate) fn insert(
    tx: &mut Tx<'_>,
    partition: Partition,
    row: &mut i64,
    stream: &StreamId,
    revision: i64,
    entry: &Entry,
) -> Result<bool, Failure> {
    if *row == row_of(partition, LAST_POSITION) {
        return Err(Failure::refused("append to another log", "the partition has no positions left"));
    }
    let inserted = tx.append()?.insert.execute(params![
        *row + 1,
        stream.as_str(),
        revision,
        entry.id.as_str(),
        entry.kind.as_str(),
        entry.time.as_microsecond(),
        entry.data.as_str(),
        entry.metadata.as_ref().map(Json::as_str),
    ])?;
    *row += i64::from(inserted == 1);
    Ok(inserted == 1)
}

fn size(json: &Json) -> usize {
    json.as_str().len()
}
