//! Documents that are written without events: a table of their own for each collection, with the collection's name.
//!
//! A row has the document's `id` and `body`, which any program may read and reactions follow, the `guard` of its next write, and the ids of the
//! `operations` that it remembers, as JSON. Writes are guarded statements; what is there is only read where a guard did not hold.

use leftfold::content::{Contents, Guard, Operated, Operation, Stored, Write, Wrote};
use leftfold::react::Plain;
use leftfold::{DocumentId, Env as _, Error, Json, Result, System};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::Sqlite;
use crate::documents::{json, text};
use crate::error::Failure;
use crate::react::check_plain;
use crate::writer::{Ran, Tx, Work};

const COLUMNS: [&str; 4] = ["id", "body", "guard", "operations"];
const OTHER_TABLE: &str =
    "name another collection, or rename the table: what is in it was not written by Leftfold";

impl Contents for Sqlite {
    async fn prepare_contents(&self, collection: &Plain) -> Result<()> {
        self.inner.writer.run(PrepareWork(collection.clone())).await
    }

    async fn contents(&self, collection: &Plain, ids: Vec<DocumentId>) -> Result<Vec<Stored>> {
        let collection = collection.clone();
        let read = move |file: &Connection| {
            let found = ids.into_iter().map(|id| find(file, &collection, id));
            found.filter_map(Result::transpose).collect()
        };
        self.inner.readers.read("load documents from", read).await
    }

    async fn write_contents(&self, collection: &Plain, writes: Vec<Write>) -> Result<Vec<Wrote>> {
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        self.inner.writer.run(WriteWork { collection: collection.clone(), writes }).await
    }

    async fn operate(
        &self,
        collection: &Plain,
        operations: Vec<(DocumentId, Operation)>,
    ) -> Result<Vec<Operated>> {
        if operations.is_empty() {
            return Ok(Vec::new());
        }
        self.inner.writer.run(OperateWork { collection: collection.clone(), operations }).await
    }
}

/// A document as it is in the file.
fn find(file: &Connection, collection: &Plain, id: DocumentId) -> Result<Option<Stored>, Failure> {
    let sql = format!("SELECT body, guard, operations FROM \"{}\" WHERE id = ?1", collection.as_str());
    let mut statement = file.prepare_cached(&sql)?;
    let mut rows = statement.query([id.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(Stored {
        id,
        body: Json::stored(row.get_ref(0)?.as_str()?),
        guard: Guard::stored(row.get_ref(1)?.as_str()?),
        operations: json(row, 2)?,
    }))
}

struct PrepareWork(Plain);

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
        let exists = "SELECT 1 FROM sqlite_schema WHERE name = ?1 COLLATE NOCASE";
        if tx.connection.prepare_cached(exists)?.query_row([name], |_| Ok(())).optional()?.is_none() {
            let sql = format!(
                "CREATE TABLE \"{name}\" (\n  id TEXT PRIMARY KEY NOT NULL,\n  body TEXT NOT NULL,\n  guard TEXT NOT NULL,\n  \
                 operations TEXT NOT NULL DEFAULT '[]'\n) STRICT"
            );
            tx.connection.execute_batch(&sql)?;
            return Ok(Ran::Keep(Ok(())));
        }
        check_plain(tx.connection, &self.0)?;
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
    collection: Plain,
    writes: Vec<Write>,
}

impl WriteWork {
    /// Makes a write, if its guard holds. Answers whether it did.
    fn write(&self, connection: &Connection, write: &Write) -> Result<bool, Failure> {
        let (table, id) = (self.collection.as_str(), write.id.as_str());
        let written = match (&write.expected, &write.to) {
            (None, Some((guard, body))) => {
                let sql = format!(
                    "INSERT INTO \"{table}\" (id, body, guard) VALUES (?1, ?2, ?3) ON CONFLICT (id) DO NOTHING"
                );
                connection.prepare_cached(&sql)?.execute([id, body.as_str(), guard.as_str()])?
            }
            (Some(expected), Some((guard, body))) => {
                let sql =
                    format!("UPDATE \"{table}\" SET body = ?2, guard = ?3 WHERE id = ?1 AND guard = ?4");
                let values = [id, body.as_str(), guard.as_str(), expected.as_str()];
                connection.prepare_cached(&sql)?.execute(values)?
            }
            (Some(expected), None) => {
                let sql = format!("DELETE FROM \"{table}\" WHERE id = ?1 AND guard = ?2");
                connection.prepare_cached(&sql)?.execute([id, expected.as_str()])?
            }
            // It must not be there, and is not to be: there is nothing to write.
            (None, None) => return Ok(find(connection, &self.collection, write.id.clone())?.is_none()),
        };
        Ok(written == 1)
    }
}

impl Work for WriteWork {
    type Answer = Result<Vec<Wrote>>;

    const DOING: &'static str = "write documents to";

    fn bytes(&self) -> usize {
        let bodies = self.writes.iter().filter_map(|write| write.to.as_ref());
        bodies.map(|(_, body)| body.as_str().len()).sum()
    }

    fn has_steps(&self) -> bool {
        self.writes.len() > 1
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let mut wrote = Vec::with_capacity(self.writes.len());
        for write in &self.writes {
            let has_written = self.write(tx.connection, write)?;
            wrote.push(if has_written {
                Wrote::Written
            } else {
                Wrote::Refused(find(tx.connection, &self.collection, write.id.clone())?)
            });
        }
        tx.wrote_documents |= wrote.contains(&Wrote::Written);
        Ok(Ran::Keep(Ok(wrote)))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

struct OperateWork {
    collection: Plain,
    operations: Vec<(DocumentId, Operation)>,
}

impl Work for OperateWork {
    type Answer = Result<Vec<Operated>>;

    const DOING: &'static str = "apply operations in";

    fn has_steps(&self) -> bool {
        self.operations.len() > 1
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let sql = format!(
            "UPDATE \"{}\" SET body = ?2, guard = ?3, operations = ?4 WHERE id = ?1",
            self.collection.as_str()
        );
        let mut operated = Vec::with_capacity(self.operations.len());
        for (id, operation) in &self.operations {
            let Some(stored) = find(tx.connection, &self.collection, id.clone())? else {
                operated.push(Operated::Missing);
                continue;
            };
            operated.push(match stored.operated(operation, System.random()) {
                Ok(Stored { id, body, guard, operations }) => {
                    let values = params![id.as_str(), body.as_str(), guard.as_str(), text(&operations)?];
                    tx.connection.prepare_cached(&sql)?.execute(values)?;
                    Operated::Applied
                }
                Err(refused) => refused,
            });
        }
        tx.wrote_documents |= operated.contains(&Operated::Applied);
        Ok(Ran::Keep(Ok(operated)))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}
