//! Guarded writes. The store reads a row only if its guard did not hold.

use std::sync::Arc;

use leftfold::content::{ContentWrite, Wrote};
use leftfold::react::ExternalCollection;
use leftfold::{Error, Result};
use rusqlite::{CachedStatement, Connection};

use super::read::find;
use crate::connection::{Ran, Tx, Work};
use crate::error::Failure;

pub(super) struct WriteWork {
    pub(super) collection: ExternalCollection,
    pub(super) writes: Arc<[ContentWrite]>,
}

impl Work for WriteWork {
    type Answer = Result<Vec<Wrote>>;

    const DOING: &'static str = "write documents to";

    fn bytes(&self) -> usize {
        let bodies = self.writes.iter().filter_map(|write| write.to.as_ref());
        bodies.map(|(_, body)| body.as_str().len()).sum()
    }

    /// Each write succeeds or fails by itself.
    fn has_steps(&self) -> bool {
        false
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let mut wrote = Vec::with_capacity(self.writes.len());
        let mut writes = Writes::new(tx.connection, &self.collection);
        // Set this even if a write fails: earlier writes stay, and followers of the collection must
        // see them.
        tx.wrote_documents = true;
        for write in &*self.writes {
            let written = writes.write(write).and_then(|has_written| {
                if has_written {
                    return Ok(Wrote::Written);
                }
                Ok(Wrote::Refused(find(tx.connection, &self.collection, write.id.clone())?))
            });
            wrote.push(written.map_err(|failure| failure.unknown_if(wrote.contains(&Wrote::Written)))?);
        }
        Ok(Ran::Keep(Ok(wrote)))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

/// The statements of many writes, each prepared on first use.
struct Writes<'c> {
    connection: &'c Connection,
    collection: &'c ExternalCollection,
    insert: Option<CachedStatement<'c>>,
    update: Option<CachedStatement<'c>>,
    delete: Option<CachedStatement<'c>>,
}

impl<'c> Writes<'c> {
    fn new(connection: &'c Connection, collection: &'c ExternalCollection) -> Self {
        Self { connection, collection, insert: None, update: None, delete: None }
    }

    /// Makes a write if its guard holds. Returns whether it did.
    fn write(&mut self, write: &ContentWrite) -> Result<bool, Failure> {
        let (connection, table, id) = (self.connection, self.collection.as_str(), write.id.as_str());
        let written = match (&write.expected, &write.to) {
            (None, Some((guard, body))) => {
                let insert = prepared(connection, &mut self.insert, || {
                    format!(
                        "INSERT INTO \"{table}\" (id, body, guard) VALUES (?1, ?2, ?3) ON CONFLICT (id) DO NOTHING"
                    )
                })?;
                insert.execute((id, body.as_str(), guard.as_bytes()))?
            }
            (Some(expected), Some((guard, body))) => {
                let update = prepared(connection, &mut self.update, || {
                    format!("UPDATE \"{table}\" SET body = ?2, guard = ?3 WHERE id = ?1 AND guard = ?4")
                })?;
                update.execute((id, body.as_str(), guard.as_bytes(), expected.as_bytes()))?
            }
            (Some(expected), None) => {
                let delete = prepared(connection, &mut self.delete, || {
                    format!("DELETE FROM \"{table}\" WHERE id = ?1 AND guard = ?2")
                })?;
                delete.execute((id, expected.as_bytes()))?
            }
            // The write expects no document and writes none: there is nothing to do.
            (None, None) => return Ok(find(connection, self.collection, write.id.clone())?.is_none()),
        };
        Ok(written == 1)
    }
}

/// Returns a statement, and prepares it on first use.
fn prepared<'s, 'c>(
    connection: &'c Connection,
    kept: &'s mut Option<CachedStatement<'c>>,
    sql: impl FnOnce() -> String,
) -> Result<&'s mut CachedStatement<'c>, Failure> {
    match kept {
        Some(statement) => Ok(statement),
        None => Ok(kept.insert(connection.prepare_cached(&sql())?)),
    }
}
