//! Skipped revisions: gaps that an operator has closed for good.

use leftfold::sequence::Skipped;
use leftfold::{Revision, StreamId};
use rusqlite::{Connection, params};

use crate::encoding::{number, signed, time};
use crate::error::Failure;

/// Lists the skipped revisions of a stream, the oldest first.
pub(super) fn list(file: &Connection, stream: &StreamId) -> Result<Vec<Skipped>, Failure> {
    let sql = "SELECT after, through, reason, at FROM leftfold_skipped WHERE stream = ?1 ORDER BY rowid";
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
}

/// Stores skipped revisions.
pub(super) fn insert(connection: &Connection, skipped: &Skipped) -> Result<(), Failure> {
    let Skipped { stream, after, through, reason, at } = skipped;
    let sql = "INSERT INTO leftfold_skipped VALUES (?1, ?2, ?3, ?4, ?5)";
    let (after, through) = (signed(after.0), signed(through.0));
    connection.prepare_cached(sql)?.execute(params![
        stream.as_str(),
        after,
        through,
        reason,
        at.as_microsecond()
    ])?;
    Ok(())
}
