//! Conflicts: events that contradict others at the same place.

use leftfold::log::Entry;
use leftfold::sequence::{Conflict, Resolution};
use leftfold::{Error, Json, Partition, Result};
use rusqlite::{Connection, params};

use super::{record, totals};
use crate::connection::{Ran, Tx, Work};
use crate::encoding::{limit, signed, text};
use crate::error::Failure;

const OPEN: &str = "SELECT stream, revision, why, since, id, kind, time, data, metadata, decided FROM leftfold_conflicts \
    WHERE decided IS NULL AND (stream, revision, fingerprint) > (?1, ?2, ?3) \
    ORDER BY stream, revision, fingerprint LIMIT ?4";

/// Lists the conflicts without a resolution, by place.
pub(super) fn list(
    file: &Connection,
    after: Option<Conflict>,
    most: usize,
) -> Result<Vec<Conflict>, Failure> {
    let (stream, revision, id) = after.map_or_else(
        || (String::new(), 0, String::new()),
        |after| (after.stream.to_string(), signed(after.revision.0), after.id()),
    );
    let mut statement = file.prepare_cached(OPEN)?;
    let mut rows = statement.query(params![stream, revision, id, limit(most)])?;
    let mut conflicts = Vec::new();
    while let Some(row) = rows.next()? {
        conflicts.push(record::conflict(row)?);
    }
    Ok(conflicts)
}

/// Stores a conflict. Returns whether it is new.
pub(super) fn insert(connection: &Connection, conflict: &Conflict) -> Result<bool, Failure> {
    let Entry { id, kind, time, data, metadata } = &*conflict.entry;
    let sql = "INSERT INTO leftfold_conflicts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, NULL) \
        ON CONFLICT DO NOTHING";
    let written = connection.prepare_cached(sql)?.execute(params![
        conflict.stream.as_str(),
        signed(conflict.revision.0),
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

/// Stores the resolution of a conflict, or deletes the conflict.
pub(super) struct ResolveWork {
    pub(super) conflict: Conflict,
    pub(super) partition: Partition,
    pub(super) decided: Option<Resolution>,
}

impl Work for ResolveWork {
    type Answer = Result<bool>;

    const DOING: &'static str = "resolve a conflict in";

    fn has_steps(&self) -> bool {
        true
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let Self { conflict, partition, decided } = self;
        let key = (conflict.stream.as_str(), signed(conflict.revision.0), conflict.id());
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
        let (mut totals, counts) = totals::read(tx.connection, *partition)?;
        totals.conflicts = totals.conflicts.saturating_sub(1);
        totals::put(tx.connection, *partition, totals, counts)?;
        Ok(Ran::Keep(Ok(true)))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}
