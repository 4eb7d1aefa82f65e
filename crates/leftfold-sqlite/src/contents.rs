//! Documents that are written without events: a table of their own for each collection, with the collection's name.
//!
//! A row has the document's `id` and `body`, which any program may read and reactions follow, the `guard` of its next write, and the ids of the
//! `operations` that it remembers, eight bytes each, in order. Writes are guarded statements; what is there is only read where a guard did not hold, and
//! for operations that SQLite can't carry out by itself.

use std::fmt::Write as _;
use std::sync::Arc;

use leftfold::content::{
    Amount, Contents, Guard, Ids, Operated, Operation, REMEMBERED, Step, Stored, Write, Wrote,
};
use leftfold::documents::MAX_BODY_BYTES;
use leftfold::react::Plain;
use leftfold::{DocumentId, Env as _, Error, Json, Result, System};
use rusqlite::{CachedStatement, Connection, OptionalExtension as _, ToSql, params};

use crate::Sqlite;
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

    async fn write_contents(&self, collection: &Plain, writes: Arc<[Write]>) -> Result<Vec<Wrote>> {
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        self.inner.writer.run(WriteWork { collection: collection.clone(), writes }).await
    }

    async fn operate(
        &self,
        collection: &Plain,
        operations: Arc<[(DocumentId, Operation)]>,
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
        operations: remembered(row.get_ref(2)?.as_blob()?),
    }))
}

fn remembered(bytes: &[u8]) -> Ids {
    let ids =
        bytes.chunks_exact(8).map(|id| id.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
    Ids::stored(ids)
}

fn bytes(operations: &Ids) -> Vec<u8> {
    operations.iter().flat_map(|id| id.get().to_be_bytes()).collect()
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
                 operations BLOB NOT NULL DEFAULT x''\n) STRICT"
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
    writes: Arc<[Write]>,
}

/// The statements of many writes, each prepared when it is needed first.
struct Writes<'c> {
    connection: &'c Connection,
    collection: &'c Plain,
    insert: Option<CachedStatement<'c>>,
    update: Option<CachedStatement<'c>>,
    delete: Option<CachedStatement<'c>>,
}

impl<'c> Writes<'c> {
    fn new(connection: &'c Connection, collection: &'c Plain) -> Self {
        Self { connection, collection, insert: None, update: None, delete: None }
    }

    /// Makes a write, if its guard holds. Answers whether it did.
    fn write(&mut self, write: &Write) -> Result<bool, Failure> {
        let (connection, table, id) = (self.connection, self.collection.as_str(), write.id.as_str());
        let written = match (&write.expected, &write.to) {
            (None, Some((guard, body))) => {
                let insert = prepared(connection, &mut self.insert, || {
                    format!(
                        "INSERT INTO \"{table}\" (id, body, guard) VALUES (?1, ?2, ?3) ON CONFLICT (id) DO NOTHING"
                    )
                })?;
                insert.execute([id, body.as_str(), guard.as_str()])?
            }
            (Some(expected), Some((guard, body))) => {
                let update = prepared(connection, &mut self.update, || {
                    format!("UPDATE \"{table}\" SET body = ?2, guard = ?3 WHERE id = ?1 AND guard = ?4")
                })?;
                update.execute([id, body.as_str(), guard.as_str(), expected.as_str()])?
            }
            (Some(expected), None) => {
                let delete = prepared(connection, &mut self.delete, || {
                    format!("DELETE FROM \"{table}\" WHERE id = ?1 AND guard = ?2")
                })?;
                delete.execute([id, expected.as_str()])?
            }
            // It must not be there, and is not to be: there is nothing to write.
            (None, None) => return Ok(find(connection, self.collection, write.id.clone())?.is_none()),
        };
        Ok(written == 1)
    }
}

/// A statement that may have been prepared before.
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

    fn has_steps(&self) -> bool {
        self.writes.len() > 1
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let mut wrote = Vec::with_capacity(self.writes.len());
        let mut writes = Writes::new(tx.connection, &self.collection);
        for write in &*self.writes {
            let has_written = writes.write(write)?;
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
    operations: Arc<[(DocumentId, Operation)]>,
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
        let mut direct = None;
        for (id, operation) in &*self.operations {
            if let Some(increments) = increments(operation)
                && increase(tx.connection, &self.collection, &mut direct, id, operation, &increments)?
            {
                operated.push(Operated::Applied);
                continue;
            }
            let Some(stored) = find(tx.connection, &self.collection, id.clone())? else {
                operated.push(Operated::Missing);
                continue;
            };
            operated.push(match stored.operated(operation, System.random()) {
                Ok(Stored { id, body, guard, operations }) => {
                    let values = params![id.as_str(), body.as_str(), guard.as_str(), bytes(&operations)];
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

/// What an operation does, if it does nothing but to increase numbers at the top level by whole ones. SQLite does that by itself.
fn increments(operation: &Operation) -> Option<Vec<(&str, i64)>> {
    const MOST: usize = 4;
    let is_plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let increments: Option<Vec<_>> = operation
        .steps()
        .map(|(path, step)| match step {
            Step::Increment(Amount::Whole(amount)) if is_plain(path) => Some((path, *amount)),
            _ => None,
        })
        .collect();
    increments.filter(|increments| (1..=MOST).contains(&increments.len()))
}

/// An amount, and the lowest and the highest number that it can be added to.
fn bounds(amount: i64) -> [i64; 3] {
    [amount, i64::MIN - amount.min(0), i64::MAX - amount.max(0)]
}

/// The statement that increases fields of these names.
struct Direct<'c> {
    names: Vec<String>,
    statement: CachedStatement<'c>,
}

impl<'c> Direct<'c> {
    fn new(
        connection: &'c Connection,
        collection: &Plain,
        increments: &[(&str, i64)],
    ) -> Result<Self, Failure> {
        let (mut sets, mut holds) = (String::new(), String::new());
        for ((name, _), parameter) in increments.iter().zip(0..) {
            // A string takes everything.
            let [amount, lowest, highest] = [4, 5, 6].map(|first| first + 3 * parameter);
            let _ = write!(sets, ", '$.{name}', (body ->> '$.{name}') + ?{amount}");
            let _ = write!(
                holds,
                " AND json_type(body, '$.{name}') = 'integer' AND (body ->> '$.{name}') BETWEEN ?{lowest} AND ?{highest}"
            );
        }
        // It is new if it is higher than all that are remembered. A number is at most twenty bytes longer than before.
        let (kept, most) = (8 * REMEMBERED, MAX_BODY_BYTES - 20 * increments.len());
        let sql = format!(
            "UPDATE \"{}\" SET body = json_set(body{sets}), guard = ?2, \
             operations = substr(CAST(operations || ?3 AS BLOB), -{kept}) \
             WHERE id = ?1 AND (operations = x'' OR substr(operations, -8) < ?3) AND octet_length(body) <= {most}{holds}",
            collection.as_str()
        );
        let names = increments.iter().map(|(name, _)| (*name).to_owned()).collect();
        Ok(Self { names, statement: connection.prepare_cached(&sql)? })
    }
}

/// Has SQLite increase numbers. Answers whether it could: if not, whoever reads the document finds out why.
fn increase<'c>(
    connection: &'c Connection,
    collection: &Plain,
    direct: &mut Option<Direct<'c>>,
    id: &DocumentId,
    operation: &Operation,
    increments: &[(&str, i64)],
) -> Result<bool, Failure> {
    let fits = |direct: &Direct<'_>| direct.names.iter().eq(increments.iter().map(|(name, _)| *name));
    if !direct.as_ref().is_some_and(fits) {
        *direct = Some(Direct::new(connection, collection, increments)?);
    }
    let Some(direct) = direct else { return Ok(false) };
    let guard = Guard::once(System.random());
    let (id, guard, number) = (id.as_str(), guard.as_str(), operation.id().get().to_be_bytes());
    let number = number.as_slice();
    let mut values: Vec<&dyn ToSql> = vec![&id, &guard, &number];
    let bounds: Vec<[i64; 3]> = increments.iter().map(|(_, amount)| bounds(*amount)).collect();
    values.extend(bounds.iter().flatten().map(|number| -> &dyn ToSql { number }));
    Ok(direct.statement.execute(values.as_slice())? == 1)
}
