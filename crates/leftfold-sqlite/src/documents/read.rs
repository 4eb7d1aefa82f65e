//! Reads of documents: by id, in pages, and counts.

use leftfold::documents::{DocumentCounts, Record};
use leftfold::{Collection, DocumentId};
use rusqlite::{Connection, Row, params};

use super::collections::table;
use super::generations::stored;
use super::record::decode;
use crate::encoding::limit;
use crate::error::Failure;

/// Returns the records that exist.
pub(super) fn load(
    file: &Connection,
    collection: &Collection,
    ids: &[DocumentId],
) -> Result<Vec<Record>, Failure> {
    let table = table(&stored(file, collection)?);
    let sql = format!("SELECT id, body, mark, parked FROM {table} WHERE id = ?1");
    let mut statement = file.prepare_cached(&sql)?;
    let mut records = Vec::with_capacity(ids.len());
    for id in ids {
        let mut rows = statement.query([id.as_str()])?;
        if let Some(row) = rows.next()? {
            records.push(decode(row)?);
        }
    }
    Ok(records)
}

/// A page of records in which a column is set, by id.
pub(super) struct Page {
    pub(super) collection: Collection,
    pub(super) column: &'static str,
    pub(super) after: Option<DocumentId>,
    pub(super) most: usize,
    pub(super) bytes: usize,
}

impl Page {
    /// Reads the page. Returns whether there may be more records beyond its limits.
    pub(super) fn read(&self, file: &Connection) -> Result<(Vec<Record>, bool), Failure> {
        let Self { collection, column, after, most, bytes } = self;
        let sql = format!(
            "SELECT id, body, mark, parked FROM {} WHERE {column} IS NOT NULL AND id > ?1 ORDER BY id LIMIT ?2",
            table(&stored(file, collection)?)
        );
        let mut statement = file.prepare_cached(&sql)?;
        // No id is empty, so all ids sort after the empty text.
        let mut rows =
            statement.query(params![after.as_ref().map_or("", DocumentId::as_str), limit(*most)])?;
        let (mut records, mut left) = (Vec::new(), *bytes);
        while let Some(row) = rows.next()? {
            let record = decode(row)?;
            if !record.fits(records.is_empty(), &mut left) {
                return Ok((records, true));
            }
            records.push(record);
        }
        let is_full = records.len() == *most;
        Ok((records, is_full))
    }
}

/// Counts the documents, and the parked ones. SQLite reads no documents for that, only the index of
/// ids and the small partial indexes.
pub(super) fn count(file: &Connection, collection: &Collection) -> Result<DocumentCounts, Failure> {
    let table = table(&stored(file, collection)?);
    let sql = format!(
        "SELECT (SELECT count(*) FROM {table}) - (SELECT count(*) FROM {table} WHERE body IS NULL), \
         count(*), min(parked ->> '$.since') FROM {table} WHERE parked IS NOT NULL"
    );
    let number = |row: &Row<'_>, column| row.get(column).map(i64::unsigned_abs);
    let mut statement = file.prepare_cached(&sql)?;
    let (documents, parked, since) = statement
        .query_row([], |row| Ok((number(row, 0)?, number(row, 1)?, row.get::<_, Option<String>>(2)?)))?;
    let parked_since = since.and_then(|since| since.parse().ok());
    Ok(DocumentCounts { documents, parked, parked_since })
}
