//! Documents written without events: each collection has a table with its name.
//!
//! A row has the document's `id` and `body`, which any program may read and reactions follow. It
//! also has the `guard` of its next write and the ids of the remembered `operations`, eight bytes
//! each, in order. Writes are guarded statements, and the statement that writes also carries out
//! operations. The store reads a row only if a guard did not hold.

mod operate;

use std::sync::Arc;

use leftfold::content::{ContentGuard, ContentWrite, Contents, Operated, Operation, Stored, Wrote};
use leftfold::react::ExternalCollection;
use leftfold::{DocumentId, Error, Json, Result};
use rusqlite::{CachedStatement, Connection, OptionalExtension as _};

pub(crate) use self::operate::Operating;
use self::operate::remembered;
use crate::Sqlite;
use crate::connection::{Ran, Tx, Work};
use crate::error::Failure;
use crate::react::check_table;

const COLUMNS: [&str; 4] = ["id", "body", "guard", "operations"];
const OTHER_TABLE: &str =
    "name another collection, or rename the table: what is in it was not written by Leftfold";

impl Contents for Sqlite {
    /// Concurrent pieces share a commit; small pieces only let writing begin early.
    const PIECE: usize = 50;

    async fn prepare_contents(&self, collection: &ExternalCollection) -> Result<()> {
        self.inner.writer.run(PrepareWork(collection.clone())).await
    }

    async fn contents(&self, collection: &ExternalCollection, ids: Vec<DocumentId>) -> Result<Vec<Stored>> {
        let collection = collection.clone();
        let read = move |file: &Connection| {
            let found = ids.into_iter().map(|id| find(file, &collection, id));
            found.filter_map(Result::transpose).collect()
        };
        self.inner.readers.read("load documents from", read).await
    }

    async fn write_contents(
        &self,
        collection: &ExternalCollection,
        writes: Arc<[ContentWrite]>,
    ) -> Result<Vec<Wrote>> {
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        self.inner.writer.run(WriteWork { collection: collection.clone(), writes }).await
    }

    async fn operate(
        &self,
        collection: &ExternalCollection,
        operations: Arc<[(DocumentId, Operation)]>,
    ) -> Result<Vec<Operated>> {
        if operations.is_empty() {
            return Ok(Vec::new());
        }
        self.inner.writer.run(OperateWork { collection: collection.clone(), operations }).await
    }
}

/// Reads a document from the file.
fn find(
    file: &Connection,
    collection: &ExternalCollection,
    id: DocumentId,
) -> Result<Option<Stored>, Failure> {
    let sql = format!("SELECT body, guard, operations FROM \"{}\" WHERE id = ?1", collection.as_str());
    let mut statement = file.prepare_cached(&sql)?;
    let mut rows = statement.query([id.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(Stored {
        id,
        body: Json::stored(row.get_ref(0)?.as_str()?),
        guard: ContentGuard::stored(row.get_ref(1)?.as_blob()?),
        operations: remembered(row.get_ref(2)?.as_blob()?),
    }))
}

struct PrepareWork(ExternalCollection);

impl Work for PrepareWork {
    type Answer = Result<()>;

    const DOING: &'static str = "prepare a collection in";

    fn has_steps(&self) -> bool {
        false
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let name = self.0.as_str();
        if name.to_ascii_lowercase().starts_with("leftfold")
            || name.to_ascii_lowercase().starts_with("sqlite_")
        {
            let report = format!("names like {name} belong to Leftfold's and SQLite's own tables");
            return Err(Failure::refused("give the collection another name", report));
        }
        let exists = "SELECT 1 FROM sqlite_schema WHERE name = ?1 COLLATE NOCASE AND type <> 'trigger'";
        if tx.connection.prepare_cached(exists)?.query_row([name], |_| Ok(())).optional()?.is_none() {
            let sql = format!(
                "CREATE TABLE \"{name}\" (\n  id TEXT PRIMARY KEY NOT NULL,\n  body TEXT NOT NULL,\n  guard BLOB NOT NULL,\n  \
                 operations BLOB NOT NULL DEFAULT x''\n) STRICT"
            );
            tx.connection.execute_batch(&sql)?;
            return Ok(Ran::Keep(Ok(())));
        }
        check_table(tx.connection, &self.0)?;
        let has = "SELECT 1 FROM pragma_table_info(?1) WHERE lower(name) = ?2";
        for column in COLUMNS {
            let found =
                tx.connection.prepare_cached(has)?.query_row([name, column], |_| Ok(())).optional()?;
            if found.is_none() {
                let report = format!("the table {name} has no column `{column}`");
                return Err(Failure::refused(OTHER_TABLE, report));
            }
        }
        Ok(Ran::Keep(Ok(())))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

struct WriteWork {
    collection: ExternalCollection,
    writes: Arc<[ContentWrite]>,
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

struct OperateWork {
    collection: ExternalCollection,
    operations: Arc<[(DocumentId, Operation)]>,
}

impl Work for OperateWork {
    type Answer = Result<Vec<Operated>>;

    const DOING: &'static str = "apply operations in";

    /// Each operation succeeds or fails by itself.
    fn has_steps(&self) -> bool {
        false
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let mut statement = Operating::statement(tx.connection, self.collection.as_str())?;
        // Set this even if an operation fails: earlier ones stay, and followers of the collection
        // must see them.
        tx.wrote_documents = true;
        Ok(Ran::Keep(Ok(tx.operating.run(&mut statement, &self.operations)?)))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}
