//! The waiting states of streams: where their gaps are, and when to ask for the missing events.

use jiff::Timestamp;
use leftfold::sequence::{DueGaps, StreamState, Survey, Waiting};
use leftfold::{Partition, StreamId};
use rusqlite::{Connection, params};

use super::{record, totals};
use crate::encoding::{json, limit, signed};
use crate::error::Failure;
use crate::log;

const STATE: &str = "SELECT version, skipped, events, bytes, first, until, highest, since, ask_at, asked, trouble \
    FROM leftfold_sequences WHERE stream = ?1";
const WAITING: &str = "SELECT stream, version, skipped, events, bytes, first, until, highest, since, ask_at, asked, trouble \
    FROM leftfold_sequences WHERE events > 0 AND stream > ?1 ORDER BY stream LIMIT ?2";
const OVERDUE: &str = "SELECT stream, version, skipped, events, bytes, first, until, highest, since, ask_at, asked, trouble \
    FROM leftfold_sequences WHERE events > 0 AND (since <= ?1 OR since > ?3) AND (ask_at <= ?2 OR ask_at > ?3) \
    ORDER BY since LIMIT ?4";

/// Returns the states of these streams, and the totals and counts of the log.
pub(super) fn survey(file: &Connection, streams: Vec<StreamId>) -> Result<Survey, Failure> {
    let mut survey = Survey::default();
    let mut last = file.prepare_cached(log::REVISION)?;
    let mut state = file.prepare_cached(STATE)?;
    for stream in streams {
        let last = log::revision(&mut last, &stream)?;
        let mut rows = state.query([stream.as_str()])?;
        let waiting = rows.next()?.map(|row| record::waiting(row, 0)).transpose()?;
        survey.streams.insert(stream, StreamState { last, waiting });
    }
    let mut totals =
        file.prepare_cached("SELECT partition, events, bytes, conflicts, counts FROM leftfold_kept")?;
    let mut rows = totals.query([])?;
    while let Some(row) = rows.next()? {
        let partition = u16::try_from(row.get::<_, i64>(0)?);
        let partition = partition.map_err(|error| Failure::damaged(error.to_string()))?;
        survey.totals.insert(Partition(partition), totals::decode(row, 1)?);
        survey.counts = survey.counts.plus(json(row, 4)?);
    }
    Ok(survey)
}

/// Lists the streams with held events, by id.
pub(super) fn waiting(
    file: &Connection,
    after: Option<&StreamId>,
    most: usize,
) -> Result<Vec<(StreamId, StreamState)>, Failure> {
    let after = after.map_or("", StreamId::as_str);
    list(file, WAITING, params![after, limit(most)])
}

/// Lists the streams with due gaps, the longest wait first.
pub(super) fn overdue(
    file: &Connection,
    due: &DueGaps,
    most: usize,
) -> Result<Vec<(StreamId, StreamState)>, Failure> {
    let [since, now, end] = [due.since, due.now, due.end].map(Timestamp::as_microsecond);
    list(file, OVERDUE, params![since, now, end, limit(most)])
}

fn list(
    file: &Connection,
    sql: &str,
    values: &[&dyn rusqlite::ToSql],
) -> Result<Vec<(StreamId, StreamState)>, Failure> {
    let mut statement = file.prepare_cached(sql)?;
    let mut last = file.prepare_cached(log::REVISION)?;
    let mut rows = statement.query(values)?;
    let mut states = Vec::new();
    while let Some(row) = rows.next()? {
        let stream = StreamId::stored(row.get_ref(0)?.as_str()?);
        let last = log::revision(&mut last, &stream)?;
        states.push((stream, StreamState { last, waiting: Some(record::waiting(row, 1)?) }));
    }
    Ok(states)
}

/// Writes the waiting state of a stream, or deletes it. `exists` tells that there is one.
pub(super) fn put(
    connection: &Connection,
    stream: &StreamId,
    exists: bool,
    waiting: Option<&Waiting>,
) -> Result<(), Failure> {
    let Some(waiting) = waiting else {
        if exists {
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
        signed(*version),
        signed(skipped.0),
        signed(*events),
        signed(*bytes),
        signed(first.0),
        signed(until.0),
        signed(highest.0),
        since.as_microsecond(),
        ask_at.as_microsecond(),
        asked,
        trouble,
    ])?;
    Ok(())
}
