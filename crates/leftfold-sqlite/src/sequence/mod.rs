//! The sequencer's storage: held events, the waiting state of their streams, conflicts and rejected
//! messages.
//!
//! A settlement is one guarded transaction of the writer: it checks the streams again while no
//! other process can write. The same transaction updates the totals.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use leftfold::log::{Entry, Limit};
use leftfold::sequence::{
    Conflict, DueGaps, Found, Held, HeldPage, MAX_REJECTED, Rejected, Resolution, SequencerCounts, Settled,
    Settlement, Skipped, StreamChange, StreamState, StreamVersion, Survey, Totals, Waiting, WantedEvents,
    too_many_rejected,
};
use leftfold::{Error, EventId, EventKind, Json, Partition, Position, Result, Revision, Sequences, StreamId};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::Sqlite;
use crate::connection::writer::{Ran, Tx, Work};
use crate::documents::{json, text};
use crate::error::Failure;
use crate::log::{self, event, position_of, revision};

const WAITING: &str = "SELECT version, skipped, events, bytes, first, until, highest, since, ask_at, asked, trouble \
    FROM leftfold_sequences WHERE stream = ?1";
const VERSION: &str = "SELECT version FROM leftfold_sequences WHERE stream = ?1";
const AT: &str = "SELECT position, stream, revision, id, kind, time, data, metadata FROM leftfold_events \
    WHERE stream = ?1 AND revision = ?2";
const HELD: &str =
    "SELECT stream, revision, previous, since, id, kind, time, data, metadata FROM leftfold_held";
const TOTALS: &str = "SELECT events, bytes, conflicts, counts FROM leftfold_kept WHERE partition = ?1";

impl Sequences for Sqlite {
    fn max_event_bytes(&self) -> usize {
        self.inner.max_event_bytes
    }

    async fn survey(&self, streams: Vec<StreamId>) -> Result<Survey> {
        let read = move |file: &Connection| {
            let mut survey = Survey::default();
            let mut last = file.prepare_cached(log::REVISION)?;
            let mut waiting = file.prepare_cached(WAITING)?;
            for stream in streams {
                let last = revision(&mut last, &stream)?;
                let mut rows = waiting.query([stream.as_str()])?;
                let waiting = rows.next()?.map(|row| self::waiting(row, 0)).transpose()?;
                survey.streams.insert(stream, StreamState { last, waiting });
            }
            let mut totals =
                file.prepare_cached("SELECT partition, events, bytes, conflicts, counts FROM leftfold_kept")?;
            let mut rows = totals.query([])?;
            while let Some(row) = rows.next()? {
                let partition = u16::try_from(row.get::<_, i64>(0)?);
                let partition = partition.map_err(|error| Failure::damaged(error.to_string()))?;
                survey.totals.insert(Partition(partition), self::totals(row, 1)?);
                survey.counts = survey.counts.plus(json(row, 4)?);
            }
            Ok(survey)
        };
        self.inner.readers.read("look at streams in", read).await
    }

    async fn find(&self, wanted: WantedEvents) -> Result<Found> {
        let read = move |file: &Connection| {
            let mut found = Found::default();
            let mut logged = file.prepare_cached(AT)?;
            let mut waiting = file.prepare_cached(&format!("{HELD} WHERE stream = ?1 AND revision = ?2"))?;
            for (stream, at) in &wanted.places {
                let place = params![stream.as_str(), stored(at.0)];
                if let Some(row) = logged.query(place)?.next()? {
                    found.logged.push(event(row)?);
                } else if let Some(row) = waiting.query(place)?.next()? {
                    found.held.push(held(row)?);
                }
            }
            let mut by_id = file.prepare_cached(log::BY_ID)?;
            for id in &wanted.ids {
                if let Some(row) = by_id.query([id.as_str()])?.next()? {
                    found.logged.push(event(row)?);
                }
            }
            Ok(found)
        };
        self.inner.readers.read("look for events in", read).await
    }

    async fn held(&self, streams: Vec<StreamId>, limit: Limit) -> Result<BTreeMap<StreamId, HeldPage>> {
        let read = move |file: &Connection| {
            let mut statement =
                file.prepare_cached(&format!("{HELD} WHERE stream = ?1 ORDER BY revision"))?;
            let mut room = limit;
            let mut pages = BTreeMap::new();
            for stream in streams {
                let mut failed = None;
                let mut rows = statement.query([stream.as_str()])?;
                let list = std::iter::from_fn(|| {
                    let next = rows.next().map_err(Failure::from).and_then(|row| row.map(held).transpose());
                    next.unwrap_or_else(|failure| {
                        failed = Some(failure);
                        None
                    })
                });
                let page = HeldPage::cut(list, &mut room);
                if let Some(failure) = failed {
                    return Err(failure);
                }
                drop(rows);
                pages.insert(stream, page);
            }
            Ok(pages)
        };
        self.inner.readers.read("look for held events in", read).await
    }

    async fn settle(&self, settlement: Arc<Settlement>) -> Result<Settled> {
        point!("settle");
        self.inner.writer.run(SettleWork(settlement)).await
    }

    async fn waiting(&self, after: Option<StreamId>, limit: usize) -> Result<Vec<(StreamId, StreamState)>> {
        let sql = "SELECT stream, version, skipped, events, bytes, first, until, highest, since, ask_at, asked, trouble \
            FROM leftfold_sequences WHERE events > 0 AND stream > ?1 ORDER BY stream LIMIT ?2";
        let read = move |file: &Connection| {
            let after = after.as_ref().map_or("", StreamId::as_str);
            standings(file, sql, params![after, count(limit)])
        };
        self.inner.readers.read("look at streams in", read).await
    }

    async fn overdue(&self, due: DueGaps, limit: usize) -> Result<Vec<(StreamId, StreamState)>> {
        let sql = "SELECT stream, version, skipped, events, bytes, first, until, highest, since, ask_at, asked, trouble \
            FROM leftfold_sequences WHERE events > 0 AND (since <= ?1 OR since > ?3) AND (ask_at <= ?2 OR ask_at > ?3) \
            ORDER BY since LIMIT ?4";
        let read = move |file: &Connection| {
            let [since, now, end] = [due.since, due.now, due.end].map(Timestamp::as_microsecond);
            standings(file, sql, params![since, now, end, count(limit)])
        };
        self.inner.readers.read("look at streams in", read).await
    }

    async fn conflicts(&self, after: Option<Conflict>, limit: usize) -> Result<Vec<Conflict>> {
        let sql = "SELECT stream, revision, why, since, id, kind, time, data, metadata, decided FROM leftfold_conflicts \
            WHERE decided IS NULL AND (stream, revision, fingerprint) > (?1, ?2, ?3) \
            ORDER BY stream, revision, fingerprint LIMIT ?4";
        let read = move |file: &Connection| {
            let (stream, revision, id) = after.map_or_else(
                || (String::new(), 0, String::new()),
                |after| (after.stream.to_string(), stored(after.revision.0), after.id()),
            );
            let mut statement = file.prepare_cached(sql)?;
            let mut rows = statement.query(params![stream, revision, id, count(limit)])?;
            let mut conflicts = Vec::new();
            while let Some(row) = rows.next()? {
                conflicts.push(conflict(row)?);
            }
            Ok(conflicts)
        };
        self.inner.readers.read("look for conflicts in", read).await
    }

    async fn skipped(&self, stream: &StreamId) -> Result<Vec<Skipped>> {
        let stream = stream.clone();
        let sql = "SELECT after, through, reason, at FROM leftfold_skipped WHERE stream = ?1 ORDER BY rowid";
        let read = move |file: &Connection| {
            let mut statement = file.prepare_cached(sql)?;
            let mut rows = statement.query([stream.as_str()])?;
            let mut skipped = Vec::new();
            while let Some(row) = rows.next()? {
                skipped.push(Skipped {
                    stream: stream.clone(),
                    after: Revision(number(row, 0)?),
                    through: Revision(number(row, 1)?),
                    reason: row.get(2)?,
                    at: time(row, 3)?,
                });
            }
            Ok(skipped)
        };
        self.inner.readers.read("look for skipped revisions in", read).await
    }

    async fn reject(&self, rejected: Vec<Rejected>) -> Result<()> {
        self.inner.writer.run(RejectWork(rejected, self.inner.writer.place())).await
    }

    async fn rejected(&self, after: Option<String>, limit: usize) -> Result<Vec<Rejected>> {
        let sql = "SELECT source, reason, since, attributes, content FROM leftfold_rejected \
            WHERE id > ?1 ORDER BY id LIMIT ?2";
        let read = move |file: &Connection| {
            let mut statement = file.prepare_cached(sql)?;
            let mut rows = statement.query(params![after.unwrap_or_default(), count(limit)])?;
            let mut list = Vec::new();
            while let Some(row) = rows.next()? {
                list.push(Rejected {
                    source: row.get(0)?,
                    reason: row.get(1)?,
                    since: time(row, 2)?,
                    attributes: json(row, 3)?,
                    content: row.get(4)?,
                });
            }
            Ok(list)
        };
        self.inner.readers.read("look for rejected messages in", read).await
    }

    async fn count_rejected(&self) -> Result<u64> {
        self.inner.readers.read("count rejected messages in", rejected_count).await
    }

    async fn forget(&self, rejected: &str) -> Result<bool> {
        self.inner.writer.run(ForgetWork(rejected.to_owned())).await
    }

    async fn resolve(&self, conflict: &Conflict, decided: Option<Resolution>) -> Result<bool> {
        let partition = Partition::of(&conflict.stream, self.inner.partitions);
        self.inner.writer.run(ResolveWork { conflict: conflict.clone(), partition, decided }).await
    }
}

struct SettleWork(Arc<Settlement>);

impl Work for SettleWork {
    type Answer = Result<Settled>;

    const DOING: &'static str = "settle deliveries in";

    fn bytes(&self) -> usize {
        let entry = |entry: &Entry| entry.data.as_str().len() + 256;
        let step = |step: &StreamChange| {
            let append = step.append.iter().map(|(_, appended)| entry(appended));
            append.chain(step.hold.iter().map(|held| entry(&held.entry))).sum::<usize>()
        };
        self.0.steps.iter().map(step).sum()
    }

    fn has_steps(&self) -> bool {
        true
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let Settlement { partition, steps, conflicts, skipped, bounds, counts } = &*self.0;
        let moved = moved(tx, steps)?;
        if !moved.is_empty() {
            return Ok(Ran::Undo(Ok(Settled::Moved(moved))));
        }
        let connection = tx.connection;
        let (before, counted) = kept(connection, *partition)?;
        let mut after = before;
        let (mut head, mut taken) = (tx.head(*partition)?, Vec::new());
        let first = head;
        for StreamChange { stream, append, hold, unhold, .. } in steps {
            for (revision, entry) in append {
                if !log::insert(tx, *partition, &mut head, stream, stored(revision.0), entry)? {
                    taken.push(entry.id.clone());
                }
            }
            release(connection, stream, unhold, &mut after)?;
            keep(connection, stream, hold, &mut after)?;
        }
        if !taken.is_empty() {
            return Ok(Ran::Undo(Ok(Settled::Taken(taken))));
        }
        point!("events-settled");
        for conflict in conflicts {
            after.conflicts += u64::from(dispute(connection, conflict)?);
        }
        if !after.is_within(bounds, &before) {
            return Ok(Ran::Undo(Ok(Settled::Full)));
        }
        for StreamChange { stream, seen, waiting, .. } in steps {
            put(connection, stream, seen.version.is_some(), waiting.as_ref())?;
        }
        if let Some(Skipped { stream, after, through, reason, at }) = skipped {
            let sql = "INSERT INTO leftfold_skipped VALUES (?1, ?2, ?3, ?4, ?5)";
            let (after, through) = (stored(after.0), stored(through.0));
            connection.prepare_cached(sql)?.execute(params![
                stream.as_str(),
                after,
                through,
                reason,
                at.as_microsecond()
            ])?;
        }
        put_totals(connection, *partition, after, counted.plus(*counts))?;
        point!("settled");
        tx.grow(*partition, head);
        Ok(Ran::Keep(Ok(Settled::Applied { before: Position(position_of(first)) })))
    }

    fn failed(error: Error) -> Self::Answer {
        if error.is_unknown() { Ok(Settled::Unknown(error)) } else { Err(error) }
    }
}

/// Returns the streams that have changed since the caller read them.
fn moved(tx: &mut Tx<'_>, steps: &[StreamChange]) -> Result<Vec<StreamId>, Failure> {
    let mut version = tx.connection.prepare_cached(VERSION)?;
    let last = &mut tx.append()?.revision;
    let mut moved = Vec::new();
    for StreamChange { stream, seen, .. } in steps {
        let last = revision(last, stream)?;
        let version =
            version.query_row([stream.as_str()], |row| row.get(0).map(i64::unsigned_abs)).optional()?;
        if (StreamVersion { last, version }) != *seen {
            moved.push(stream.clone());
        }
    }
    Ok(moved)
}

/// Deletes released events.
fn release(
    connection: &Connection,
    stream: &StreamId,
    unhold: &[Revision],
    totals: &mut Totals,
) -> Result<(), Failure> {
    let sql = "DELETE FROM leftfold_held WHERE stream = ?1 AND revision = ?2 \
        RETURNING length(CAST(data AS BLOB)) + ifnull(length(CAST(metadata AS BLOB)), 0) + 128";
    let mut delete = connection.prepare_cached(sql)?;
    for revision in unhold {
        let bytes =
            delete.query_row(params![stream.as_str(), stored(revision.0)], |row| row.get::<_, i64>(0));
        let Some(bytes) = bytes.optional()? else {
            return Err(Failure::damaged(format!(
                "revision {revision} of stream {stream} is no longer held"
            )));
        };
        totals.events = totals.events.saturating_sub(1);
        totals.bytes = totals.bytes.saturating_sub(bytes.unsigned_abs());
    }
    Ok(())
}

/// Inserts held events.
fn keep(
    connection: &Connection,
    stream: &StreamId,
    hold: &[Held],
    totals: &mut Totals,
) -> Result<(), Failure> {
    let mut insert =
        connection.prepare_cached("INSERT INTO leftfold_held VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)")?;
    for held in hold {
        let Entry { id, kind, time, data, metadata } = &*held.entry;
        insert.execute(params![
            stream.as_str(),
            stored(held.revision.0),
            stored(held.previous.0),
            held.since.as_microsecond(),
            id.as_str(),
            kind.as_str(),
            time.as_microsecond(),
            data.as_str(),
            metadata.as_ref().map(Json::as_str),
        ])?;
        totals.events += 1;
        totals.bytes += held.bytes();
    }
    Ok(())
}

/// Stores a conflict. Returns whether it is new.
fn dispute(connection: &Connection, conflict: &Conflict) -> Result<bool, Failure> {
    let Entry { id, kind, time, data, metadata } = &*conflict.entry;
    let sql = "INSERT INTO leftfold_conflicts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, NULL) \
        ON CONFLICT DO NOTHING";
    let written = connection.prepare_cached(sql)?.execute(params![
        conflict.stream.as_str(),
        stored(conflict.revision.0),
        conflict.id(),
        text(&conflict.why)?,
        conflict.since.as_microsecond(),
        id.as_str(),
        kind.as_str(),
        time.as_microsecond(),
        data.as_str(),
        metadata.as_ref().map(Json::as_str),
    ])?;
    Ok(written == 1)
}

/// Writes the waiting state of a stream.
fn put(
    connection: &Connection,
    stream: &StreamId,
    was_there: bool,
    waiting: Option<&Waiting>,
) -> Result<(), Failure> {
    let Some(waiting) = waiting else {
        if was_there {
            connection
                .prepare_cached("DELETE FROM leftfold_sequences WHERE stream = ?1")?
                .execute([stream.as_str()])?;
        }
        return Ok(());
    };
    let Waiting { version, skipped, events, bytes, first, until, highest, since, ask_at, asked, trouble } =
        waiting;
    let sql = "INSERT OR REPLACE INTO leftfold_sequences \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    connection.prepare_cached(sql)?.execute(params![
        stream.as_str(),
        stored(*version),
        stored(skipped.0),
        stored(*events),
        stored(*bytes),
        stored(first.0),
        stored(until.0),
        stored(highest.0),
        since.as_microsecond(),
        ask_at.as_microsecond(),
        asked,
        trouble,
    ])?;
    Ok(())
}

/// Returns the totals and counts of a partition.
fn kept(connection: &Connection, partition: Partition) -> Result<(Totals, SequencerCounts), Failure> {
    let mut statement = connection.prepare_cached(TOTALS)?;
    let mut rows = statement.query([partition.0])?;
    rows.next()?.map_or_else(|| Ok(Default::default()), |row| Ok((totals(row, 0)?, json(row, 3)?)))
}

fn put_totals(
    connection: &Connection,
    partition: Partition,
    totals: Totals,
    counts: SequencerCounts,
) -> Result<(), Failure> {
    let Totals { events, bytes, conflicts } = totals;
    let values = params![partition.0, stored(events), stored(bytes), stored(conflicts), text(&counts)?];
    connection
        .prepare_cached("INSERT OR REPLACE INTO leftfold_kept VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(values)?;
    Ok(())
}

struct ResolveWork {
    conflict: Conflict,
    partition: Partition,
    decided: Option<Resolution>,
}

impl Work for ResolveWork {
    type Answer = Result<bool>;

    const DOING: &'static str = "resolve a conflict in";

    fn has_steps(&self) -> bool {
        true
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let Self { conflict, partition, decided } = self;
        let key = (conflict.stream.as_str(), stored(conflict.revision.0), conflict.id());
        let place = "stream = ?1 AND revision = ?2 AND fingerprint = ?3 AND decided IS NULL";
        let changed = match decided {
            Some(decided) => tx
                .connection
                .prepare_cached(&format!("UPDATE leftfold_conflicts SET decided = ?4 WHERE {place}"))?
                .execute(params![key.0, key.1, key.2, text(decided)?])?,
            None => tx
                .connection
                .prepare_cached(&format!("DELETE FROM leftfold_conflicts WHERE {place}"))?
                .execute(params![key.0, key.1, key.2])?,
        };
        if changed == 0 {
            return Ok(Ran::Undo(Ok(false)));
        }
        let (mut totals, counts) = kept(tx.connection, *partition)?;
        totals.conflicts = totals.conflicts.saturating_sub(1);
        put_totals(tx.connection, *partition, totals, counts)?;
        Ok(Ran::Keep(Ok(true)))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

struct RejectWork(Vec<Rejected>, String);

impl Work for RejectWork {
    type Answer = Result<()>;

    const DOING: &'static str = "keep a rejected message in";

    fn bytes(&self) -> usize {
        self.0.iter().map(|rejected| rejected.content.len() + 256).sum()
    }

    fn has_steps(&self) -> bool {
        true
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let sql = "INSERT INTO leftfold_rejected VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (id) DO NOTHING";
        let mut insert = tx.connection.prepare_cached(sql)?;
        for rejected in &self.0 {
            let Rejected { source, reason, since, attributes, content } = rejected;
            let since = since.as_microsecond();
            insert.execute(params![rejected.id(), source, reason, since, text(attributes)?, content])?;
        }
        if rejected_count(tx.connection)? > MAX_REJECTED {
            return Ok(Ran::Undo(Err(too_many_rejected(&self.1))));
        }
        Ok(Ran::Keep(Ok(())))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

fn rejected_count(connection: &Connection) -> Result<u64, Failure> {
    let mut statement = connection.prepare_cached("SELECT count(*) FROM leftfold_rejected")?;
    Ok(statement.query_row([], |row| row.get::<_, i64>(0))?.unsigned_abs())
}

struct ForgetWork(String);

impl Work for ForgetWork {
    type Answer = Result<bool>;

    const DOING: &'static str = "forget a rejected message in";

    fn has_steps(&self) -> bool {
        false
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let mut statement = tx.connection.prepare_cached("DELETE FROM leftfold_rejected WHERE id = ?1")?;
        Ok(Ran::Keep(Ok(statement.execute([&self.0])? == 1)))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

/// Converts a number for storage. It was checked on arrival, so it always fits.
fn stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn number(row: &Row<'_>, column: usize) -> Result<u64, Failure> {
    Ok(row.get_ref(column)?.as_i64()?.unsigned_abs())
}

fn time(row: &Row<'_>, column: usize) -> Result<Timestamp, Failure> {
    let micros = row.get_ref(column)?.as_i64()?;
    Timestamp::from_microsecond(micros).map_err(|error| Failure::damaged(error.to_string()))
}

fn totals(row: &Row<'_>, column: usize) -> Result<Totals, Failure> {
    let (events, bytes, conflicts) =
        (number(row, column)?, number(row, column + 1)?, number(row, column + 2)?);
    Ok(Totals { events, bytes, conflicts })
}

fn standings(
    file: &Connection,
    sql: &str,
    values: &[&dyn rusqlite::ToSql],
) -> Result<Vec<(StreamId, StreamState)>, Failure> {
    let mut statement = file.prepare_cached(sql)?;
    let mut last = file.prepare_cached(log::REVISION)?;
    let mut rows = statement.query(values)?;
    let mut standings = Vec::new();
    while let Some(row) = rows.next()? {
        let stream = StreamId::stored(row.get_ref(0)?.as_str()?);
        let standing = StreamState { last: revision(&mut last, &stream)?, waiting: Some(waiting(row, 1)?) };
        standings.push((stream, standing));
    }
    Ok(standings)
}

/// Decodes a waiting state that starts at this column.
fn waiting(row: &Row<'_>, column: usize) -> Result<Waiting, Failure> {
    let number = |at| number(row, column + at);
    Ok(Waiting {
        version: number(0)?,
        skipped: Revision(number(1)?),
        events: number(2)?,
        bytes: number(3)?,
        first: Revision(number(4)?),
        until: Revision(number(5)?),
        highest: Revision(number(6)?),
        since: time(row, column + 7)?,
        ask_at: time(row, column + 8)?,
        asked: row.get(column + 9)?,
        trouble: row.get(column + 10)?,
    })
}

/// Decodes an event that starts at this column: id, type, time, data, metadata.
fn entry(row: &Row<'_>, column: usize) -> Result<Arc<Entry>, Failure> {
    let text = |at| row.get_ref(column + at)?.as_str().map_err(Failure::from);
    Ok(Arc::new(Entry {
        id: EventId::stored(text(0)?),
        kind: EventKind::stored(text(1)?),
        time: time(row, column + 2)?,
        data: Json::stored(text(3)?),
        metadata: row.get_ref(column + 4)?.as_str_or_null()?.map(Json::stored),
    }))
}

fn held(row: &Row<'_>) -> Result<Held, Failure> {
    Ok(Held {
        stream: StreamId::stored(row.get_ref(0)?.as_str()?),
        revision: Revision(number(row, 1)?),
        previous: Revision(number(row, 2)?),
        since: time(row, 3)?,
        entry: entry(row, 4)?,
    })
}

fn conflict(row: &Row<'_>) -> Result<Conflict, Failure> {
    let decided = match row.get_ref(9)?.as_str_or_null()? {
        Some(_) => Some(json(row, 9)?),
        None => None,
    };
    Ok(Conflict {
        stream: StreamId::stored(row.get_ref(0)?.as_str()?),
        revision: Revision(number(row, 1)?),
        why: json(row, 2)?,
        since: time(row, 3)?,
        entry: entry(row, 4)?,
        decided,
    })
}
