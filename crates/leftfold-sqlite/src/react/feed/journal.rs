//! The journal of changes: an entry for each change of a followed document, in commit order.
//!
//! Entries are numbered without gaps, so a feed that resumes at a place can tell whether later
//! entries are missing. An entry without an id marks a gap: some changes may not have been
//! recorded. Entries that all feeds have passed are deleted, a few each time a feed stores its
//! place. A feed that never comes back delays this only up to the journal's own bound.

use std::collections::{BTreeMap, BTreeSet};

use leftfold::DocumentId;
use leftfold::react::DocumentSource;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::encoding::limit;
use crate::error::Failure;
use crate::react::documents;
use crate::schema;

/// The number of entries read at once, including those of other documents.
const PAGE: i64 = 10_000;

/// Returns the number of the last entry that was ever written.
pub(crate) fn last(file: &Connection) -> Result<i64, Failure> {
    let sql = "SELECT seq FROM sqlite_sequence WHERE name = 'leftfold_changes'";
    Ok(file.prepare_cached(sql)?.query_row([], |row| row.get(0)).optional()?.unwrap_or(0))
}

/// Returns SQLite's schema version, which changes with tables or triggers.
pub(crate) fn schema(file: &Connection) -> Result<i64, Failure> {
    Ok(file.prepare_cached("PRAGMA schema_version")?.query_row([], |row| row.get(0))?)
}

pub(in crate::react) fn is_there(file: &Connection) -> Result<bool, Failure> {
    let sql =
        "SELECT count(*) = 2 FROM sqlite_schema WHERE name IN ('leftfold_changes', 'leftfold_changes_bound')";
    Ok(file.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
}

/// Creates the journal if it, or a part of it, was dropped.
pub(in crate::react) fn make(connection: &Connection) -> Result<(), Failure> {
    if !is_there(connection)? {
        connection.execute_batch("DROP TABLE IF EXISTS leftfold_changes")?;
        connection.execute_batch(schema::JOURNAL)?;
    }
    Ok(())
}

/// Records a gap: changes of these documents may be missing from the journal.
pub(in crate::react) fn note_gap(connection: &Connection, source: &str) -> Result<(), Failure> {
    let sql = "INSERT INTO leftfold_changes (source, id) VALUES (?1, NULL)";
    connection.prepare_cached(sql)?.execute([source])?;
    Ok(())
}

/// The entries after a place in the journal.
pub(super) enum Page {
    /// The changed documents among the followed ones.
    Changes { documents: BTreeMap<DocumentSource, BTreeSet<DocumentId>>, through: i64, more: bool },
    /// Some changes are unknown, for this reason.
    Lost(String),
}

/// Reads entries after a place, up to this many documents.
pub(super) fn read(
    file: &Connection,
    on: &BTreeMap<String, DocumentSource>,
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
            return Ok(Page::Lost(format!("the journal has no entries between {through} and {seq}")));
        }
        through = seq;
        let Some(on) = on.get(row.get_ref(1)?.as_str()?) else { continue };
        let value = row.get_ref(2)?;
        if value == ValueRef::Null {
            return Ok(Page::Lost(format!("changes of {on} before entry {seq} were not recorded")));
        }
        let Some(id) = documents::id(value) else {
            tracing::warn!(%on, id = ?value, "skipped a change: no document can have this id");
            continue;
        };
        found += usize::from(documents.entry(on.clone()).or_default().insert(id));
    }
    if through == at && last != at {
        return Ok(Page::Lost(format!("the journal is at entry {last}, and has no entries after {at}")));
    }
    Ok(Page::Changes { documents, through, more: through < last })
}

/// Deletes entries that all feeds have passed. Keeps all entries if no feed has a place, because
/// one may be about to start.
pub(super) fn trim(connection: &Connection, most: usize) -> Result<(), Failure> {
    let sql = "DELETE FROM leftfold_changes \
        WHERE seq <= (SELECT min(CAST(place AS INTEGER)) FROM leftfold_places) \
        AND seq < (SELECT min(seq) FROM leftfold_changes) + ?1";
    connection.prepare_cached(sql)?.execute([limit(most)])?;
    Ok(())
}
