//! Rejected messages, for operators.

use leftfold::sequence::{MAX_REJECTED, Rejected, too_many_rejected};
use leftfold::{Error, Result};
use rusqlite::{Connection, params};

use crate::connection::{Ran, Tx, Work};
use crate::encoding::{json, limit, text, time};
use crate::error::Failure;

/// Lists the rejected messages, by id.
pub(super) fn list(file: &Connection, after: Option<String>, most: usize) -> Result<Vec<Rejected>, Failure> {
    let sql = "SELECT source, reason, since, attributes, content FROM leftfold_rejected \
        WHERE id > ?1 ORDER BY id LIMIT ?2";
    let mut statement = file.prepare_cached(sql)?;
    let mut rows = statement.query(params![after.unwrap_or_default(), limit(most)])?;
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
}

/// Counts the rejected messages.
pub(super) fn count(connection: &Connection) -> Result<u64, Failure> {
    let mut statement = connection.prepare_cached("SELECT count(*) FROM leftfold_rejected")?;
    Ok(statement.query_row([], |row| row.get::<_, i64>(0))?.unsigned_abs())
}

/// Stores rejected messages, unless there would be too many. The text names the file in errors.
pub(super) struct RejectWork(pub(super) Vec<Rejected>, pub(super) String);

impl Work for RejectWork {
    type Answer = Result<()>;

    const DOING: &'static str = "store a rejected message in";

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
        if count(tx.connection)? > MAX_REJECTED {
            return Ok(Ran::Undo(Err(too_many_rejected(&self.1))));
        }
        Ok(Ran::Keep(Ok(())))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

/// Deletes a rejected message.
pub(super) struct DeleteWork(pub(super) String);

impl Work for DeleteWork {
    type Answer = Result<bool>;

    const DOING: &'static str = "delete a rejected message in";

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
