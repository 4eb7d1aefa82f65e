//! Settling: appending, holding and releasing the events of streams, in one guarded transaction.
//!
//! The writer checks the streams again while no other process can write. The same transaction
//! updates the totals.

use std::sync::Arc;

use leftfold::log::Entry;
use leftfold::sequence::{Held, Settled, Settlement, StreamChange, StreamVersion, Totals};
use leftfold::{Error, Json, Position, Result, Revision, StreamId};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{conflicts, skipped, streams, totals};
use crate::append;
use crate::connection::{Ran, Tx, Work};
use crate::encoding::signed;
use crate::error::Failure;
use crate::log::{position_of, revision};

const VERSION: &str = "SELECT version FROM leftfold_sequences WHERE stream = ?1";

pub(super) struct SettleWork(pub(super) Arc<Settlement>);

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
        let (before, counted) = totals::read(connection, *partition)?;
        let mut after = before;
        let (mut head, mut taken) = (tx.head(*partition)?, Vec::new());
        let first = head;
        for StreamChange { stream, append, hold, unhold, .. } in steps {
            for (revision, entry) in append {
                if !append::insert(tx, *partition, &mut head, stream, signed(revision.0), entry)? {
                    taken.push(entry.id.clone());
                }
            }
            delete_held(connection, stream, unhold, &mut after)?;
            insert_held(connection, stream, hold, &mut after)?;
        }
        if !taken.is_empty() {
            return Ok(Ran::Undo(Ok(Settled::Taken(taken))));
        }
        point!("events-settled");
        for conflict in conflicts {
            after.conflicts += u64::from(conflicts::insert(connection, conflict)?);
        }
        if !after.is_within(bounds, &before) {
            return Ok(Ran::Undo(Ok(Settled::Full)));
        }
        for StreamChange { stream, seen, waiting, .. } in steps {
            streams::put(connection, stream, seen.version.is_some(), waiting.as_ref())?;
        }
        if let Some(skipped) = skipped {
            skipped::insert(connection, skipped)?;
        }
        totals::put(connection, *partition, after, counted.plus(*counts))?;
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
fn delete_held(
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
            delete.query_row(params![stream.as_str(), signed(revision.0)], |row| row.get::<_, i64>(0));
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
fn insert_held(
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
            signed(held.revision.0),
            signed(held.previous.0),
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
