//! The journal of changes: an entry for each change of a followed document, in the order of commits.
//!
//! Entries are numbered without gaps, so whoever comes back to a place can tell whether something after it is missing. An entry without an
//! id says that there may have been changes that were not noted. What all feeds have passed is deleted, a few entries whenever
//! one of them says where it is; a feed that never comes back holds up no more than the journal's own bound.

use std::collections::{BTreeMap, BTreeSet};

use leftfold::react::On;
use leftfold::{DocumentId, Error, Result};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{count, documents};
use crate::error::Failure;
use crate::schema;
use crate::writer::{Ran, Tx, Work};

/// How many entries are read in one go, whosever they are.
const PAGE: i64 = 10_000;
/// How many entries are deleted in one go.
const TRIM: usize = 10_000;

/// The number of the last entry there was.
pub(crate) fn last(file: &Connection) -> Result<i64, Failure> {
    let sql = "SELECT seq FROM sqlite_sequence WHERE name = 'leftfold_changes'";
    Ok(file.prepare_cached(sql)?.query_row([], |row| row.get(0)).optional()?.unwrap_or(0))
}

/// Another number after tables or triggers have changed.
pub(crate) fn schema(file: &Connection) -> Result<i64, Failure> {
    Ok(file.prepare_cached("PRAGMA schema_version")?.query_row([], |row| row.get(0))?)
}

pub(super) fn is_there(file: &Connection) -> Result<bool, Failure> {
    let sql =
        "SELECT count(*) = 2 FROM sqlite_schema WHERE name IN ('leftfold_changes', 'leftfold_changes_bound')";
    Ok(file.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
}

/// Makes the journal, if somebody has dropped it or a part of it.
pub(super) fn make(connection: &Connection) -> Result<(), Failure> {
    if !is_there(connection)? {
        connection.execute_batch("DROP TABLE IF EXISTS leftfold_changes")?;
        connection.execute_batch(schema::JOURNAL)?;
    }
    Ok(())
}

/// Notes that there may have been changes of these documents that were not noted.
pub(super) fn note_gap(connection: &Connection, source: &str) -> Result<(), Failure> {
    let sql = "INSERT INTO leftfold_changes (source, id) VALUES (?1, NULL)";
    connection.prepare_cached(sql)?.execute([source])?;
    Ok(())
}

/// What follows a place in the journal.
pub(super) enum Page {
    /// These documents have changed, of those that were asked for.
    Changes { documents: BTreeMap<On, BTreeSet<DocumentId>>, through: i64, more: bool },
    /// Some changes are not known, for this reason.
    Lost(String),
}

/// Reads on from a place, until so many documents are found.
pub(super) fn read(
    file: &Connection,
    on: &BTreeMap<String, On>,
    at: i64,
    most: usize,
) -> Result<Page, Failure> {
    let last = last(file)?;
    let sql = "SELECT seq, source, id FROM leftfold_changes WHERE seq > ?1 ORDER BY seq LIMIT ?2";
    let mut statement = file.prepare_cached(sql)?;
    let mut rows = statement.query(params![at, PAGE])?;
    let (mut documents, mut through, mut found) = (BTreeMap::<_, BTreeSet<_>>::new(), at, 0);
    while found < most.max(1)
        && let Some(row) = rows.next()?
    {
        let seq = row.get_ref(0)?.as_i64()?;
        if seq != through + 1 {
            return Ok(Page::Lost(format!("the journal has nothing between entries {through} and {seq}")));
        }
        through = seq;
        let Some(on) = on.get(row.get_ref(1)?.as_str()?) else { continue };
        let value = row.get_ref(2)?;
        if value == ValueRef::Null {
            return Ok(Page::Lost(format!("changes of {on} before entry {seq} were not noted")));
        }
        let Some(id) = documents::id(value) else {
            tracing::warn!(%on, id = ?value, "what changed has an id that no document can have");
            continue;
        };
        found += usize::from(documents.entry(on.clone()).or_default().insert(id));
    }
    if through == at && last != at {
        return Ok(Page::Lost(format!("the journal is at entry {last}, and has nothing after {at}")));
    }
    Ok(Page::Changes { documents, through, more: through < last })
}

/// Where a feed is to go on.
pub(super) fn place(file: &Connection, name: &str) -> Result<Option<String>, Failure> {
    let sql = "SELECT place FROM leftfold_places WHERE feed = ?1";
    Ok(file.prepare_cached(sql)?.query_row([name], |row| row.get(0)).optional()?)
}

/// Says where a feed is to go on.
pub(super) struct PlaceWork {
    pub(super) name: String,
    pub(super) lease: u64,
    pub(super) place: Option<String>,
}

impl Work for PlaceWork {
    type Answer = Result<bool>;

    const DOING: &'static str = "keep a feed's place in";

    fn has_steps(&self) -> bool {
        true
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let Self { name, lease, place } = self;
        let sql = "SELECT number FROM leftfold_leases WHERE name = ?1";
        let number: Option<i64> =
            tx.connection.prepare_cached(sql)?.query_row([name], |row| row.get(0)).optional()?;
        if number.map(i64::cast_unsigned) != Some(*lease) {
            return Ok(Ran::Keep(Ok(false)));
        }
        let mut put = tx.connection.prepare_cached(
            "INSERT INTO leftfold_places VALUES (?1, ?2) ON CONFLICT (feed) DO UPDATE SET place = excluded.place",
        )?;
        let mut forget = tx.connection.prepare_cached("DELETE FROM leftfold_places WHERE feed = ?1")?;
        match place {
            Some(place) => put.execute([name, place])?,
            None => forget.execute([name])?,
        };
        point!("place-put");
        trim(tx.connection, TRIM)?;
        Ok(Ran::Keep(Ok(true)))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

/// Deletes entries that all feeds have passed. Where no feed has a place, all are kept: one may be about to begin.
fn trim(connection: &Connection, most: usize) -> Result<(), Failure> {
    let sql = "DELETE FROM leftfold_changes \
        WHERE seq <= (SELECT min(CAST(place AS INTEGER)) FROM leftfold_places) \
        AND seq < (SELECT min(seq) FROM leftfold_changes) + ?1";
    connection.prepare_cached(sql)?.execute([count(most)])?;
    Ok(())
}
