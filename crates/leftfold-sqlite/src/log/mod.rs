//! The log: one table, with the partition and the position as the row number.
//!
//! A partition is thus a contiguous range of rows, and reading it is one walk along the table. The
//! writer assigns positions inside its transaction: 1, 2, 3 … without gaps. So commit order is
//! position order, and a reader never misses an event that appears later at a lower position.

use leftfold::log::{Entry, Limit, LogPage, check_entries, judge_append};
use leftfold::{
    Append, AppendError, Appended, Bookmark, Error, Event, EventId, EventKind, Expected, Invalid, Json, Lane,
    Log, Mark, Partition, Position, Result, Revision, StreamId,
};
use rusqlite::{Connection, OptionalExtension as _, Row, Statement, params};

use crate::Sqlite;
use crate::connection::writer::{Ran, Tx, Work};
use crate::error::Failure;

const POSITION_BITS: u32 = 48;
const LAST_POSITION: i64 = (1 << POSITION_BITS) - 1;
const READ: &str = "SELECT position, stream, revision, id, kind, time, data, metadata \
    FROM leftfold_events WHERE position > ?1 AND position <= ?2 ORDER BY position LIMIT ?3";
const READ_STREAM: &str = "SELECT position, stream, revision, id, kind, time, data, metadata \
    FROM leftfold_events WHERE stream = ?1 AND revision > ?2 ORDER BY revision LIMIT ?3";
pub(crate) const REVISION: &str =
    "SELECT revision FROM leftfold_events WHERE stream = ?1 ORDER BY revision DESC LIMIT 1";
pub(crate) const INSERT: &str =
    "INSERT INTO leftfold_events VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (id) DO NOTHING";
pub(crate) const BY_ID: &str = "SELECT position, stream, revision, id, kind, time, data, metadata \
    FROM leftfold_events WHERE id = ?1";

impl Log for Sqlite {
    fn partitions(&self) -> u16 {
        self.inner.partitions
    }

    async fn heads(&self) -> Result<Mark> {
        let count = usize::from(self.inner.partitions);
        let heads = self.inner.readers.read("read the log in", move |file| heads(file, count)).await?;
        Ok((0..).zip(heads).map(|(partition, head)| (Lane::from(Partition(partition)), head)).collect())
    }

    async fn read(&self, partition: Partition, after: Position, limit: Limit) -> Result<LogPage> {
        if partition.0 >= self.inner.partitions {
            let expected = format!("one below {}, the number of partitions", self.inner.partitions);
            return Err(Invalid::new("partition", &partition.to_string(), expected).into());
        }
        let first = row_of(partition, storable("position", after.0)?.min(LAST_POSITION));
        let last = row_of(partition, LAST_POSITION);
        self.inner
            .readers
            .read("read the log in", move |file| {
                let mut statement = file.prepare_cached(READ)?;
                let (events, more) = take(statement.query(params![first, last, rows(limit)])?, limit)?;
                let through = events.last().map_or(after, |event| event.position);
                Ok(LogPage { events, through, more })
            })
            .await
    }

    async fn read_stream(&self, stream: &StreamId, after: Revision, limit: Limit) -> Result<Vec<Event>> {
        let stream = stream.clone();
        let after = storable("revision", after.0)?;
        self.inner
            .readers
            .read("read a stream in", move |file| {
                let mut statement = file.prepare_cached(READ_STREAM)?;
                Ok(take(statement.query(params![stream.as_str(), after, rows(limit)])?, limit)?.0)
            })
            .await
    }

    async fn grown(&self, beyond: &Mark) -> Result<()> {
        let (_waiting, mut known) = self.inner.board.wait()?;
        // The wait can't fail: this handle keeps the board alive.
        let _ = known.wait_for(|known| known.is_beyond(beyond)).await;
        Ok(())
    }
}

impl Append for Sqlite {
    async fn append(
        &self,
        stream: StreamId,
        expected: Expected,
        entries: Vec<Entry>,
    ) -> Result<Appended, AppendError> {
        check_entries(&entries, self.inner.max_event_bytes)?;
        if let Expected::Revision(revision) = expected {
            storable("expected revision", revision.0)?;
        }
        let partition = Partition::of(&stream, self.inner.partitions);
        self.inner.writer.run(AppendWork { stream, partition, expected, entries }).await
    }
}

struct AppendWork {
    stream: StreamId,
    partition: Partition,
    expected: Expected,
    entries: Vec<Entry>,
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
        let welcome = self.entries.len() == 1
            && match self.expected {
                Expected::Any => true,
                Expected::Revision(expected) => expected == current,
            };
        if welcome && let Some(bookmark) = self.insert(tx, current)? {
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
            None => Err(Failure::damaged("an event id is in its index and in no event")),
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

/// Converts a number to SQLite, where numbers are signed.
fn storable(what: &'static str, number: u64) -> Result<i64, Invalid> {
    i64::try_from(number)
        .map_err(|_| Invalid::new(what, &number.to_string(), format!("a number up to {}", i64::MAX)))
}

fn row_of(partition: Partition, position: i64) -> i64 {
    i64::from(partition.0) << POSITION_BITS | position
}

pub(crate) fn position_of(row: i64) -> u64 {
    (row & LAST_POSITION).unsigned_abs()
}

/// Returns the last position of each partition.
pub(crate) fn heads(connection: &Connection, partitions: usize) -> Result<Vec<u64>, Failure> {
    (0..).take(partitions).map(|number| head(connection, Partition(number)).map(position_of)).collect()
}

/// Returns whether some partition's head is beyond the mark.
pub(crate) fn are_beyond(heads: &[u64], mark: &Mark) -> bool {
    (0..).zip(heads).any(|(partition, head)| *head > mark.position(Partition(partition)).0)
}

/// Returns the last row of a partition.
pub(crate) fn head(connection: &Connection, partition: Partition) -> Result<i64, Failure> {
    let mut statement = connection.prepare_cached(
        "SELECT position FROM leftfold_events WHERE position > ?1 AND position <= ?2 \
         ORDER BY position DESC LIMIT 1",
    )?;
    let none = row_of(partition, 0);
    let row = statement.query_row([none, row_of(partition, LAST_POSITION)], |row| row.get(0)).optional()?;
    Ok(row.unwrap_or(none))
}

pub(crate) fn revision(statement: &mut Statement<'_>, stream: &StreamId) -> Result<Revision, Failure> {
    let revision = statement.query_row([stream.as_str()], |row| row.get::<_, i64>(0)).optional()?;
    Ok(Revision(revision.unwrap_or(0).unsigned_abs()))
}

/// Returns the number of rows to read: one more than wanted shows whether there are more.
fn rows(limit: Limit) -> i64 {
    i64::try_from(limit.events.max(1)).unwrap_or(i64::MAX).saturating_add(1)
}

/// Reads events up to the limit, and returns whether the limit ended the page.
fn take(mut rows: rusqlite::Rows<'_>, limit: Limit) -> Result<(Vec<Event>, bool), Failure> {
    let mut events = Vec::new();
    let mut bytes = 0_usize;
    while let Some(row) = rows.next()? {
        let text = |column| row.get_ref(column)?.as_str_or_null().map_err(Failure::from);
        bytes += text(6)?.map_or(0, str::len) + text(7)?.map_or(0, str::len);
        if !events.is_empty() && (events.len() >= limit.events || bytes > limit.bytes) {
            return Ok((events, true));
        }
        events.push(event(row)?);
    }
    Ok((events, false))
}

pub(crate) fn event(row: &Row<'_>) -> Result<Event, Failure> {
    let text = |column| row.get_ref(column)?.as_str().map_err(Failure::from);
    let number = |column| row.get_ref(column)?.as_i64().map_err(Failure::from);
    let place = number(0)?;
    let time = jiff::Timestamp::from_microsecond(number(5)?);
    let partition = u16::try_from(place >> POSITION_BITS);
    Ok(Event {
        id: EventId::stored(text(3)?),
        stream: StreamId::stored(text(1)?),
        revision: Revision(number(2)?.unsigned_abs()),
        kind: EventKind::stored(text(4)?),
        time: time.map_err(|error| Failure::damaged(error.to_string()))?,
        data: Json::stored(text(6)?),
        metadata: row.get_ref(7)?.as_str_or_null()?.map(Json::stored),
        partition: Partition(partition.map_err(|error| Failure::damaged(error.to_string()))?),
        position: Position(position_of(place)),
    })
}
