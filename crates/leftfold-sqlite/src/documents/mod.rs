//! Documents: each collection has a table, and a view with the collection's name for queries.
//!
//! A commit is one transaction: it moves the checkpoint from its expected mark, then writes every
//! document under its own guard. Marks are stored as JSON text. Each mark has exactly one text, so
//! comparing texts compares marks. Rows are never deleted: a row without a body still stores its
//! mark.

pub(crate) mod collections;
pub(crate) mod generations;
mod lease;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leftfold::documents::{
    Advance, Checkpoint, Claim, CollectionWrites, Commit, CommitConflict, CommitOutcome, DocumentCounts,
    DocumentWrite, Generations, Header, Record,
};
use leftfold::{Collection, DocumentId, Documents, Error, Json, Mark, Result};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::collections::{Prepare, table};
use self::generations::{DropWork, PutWork, stored};
use self::lease::{ClaimWork, ReleaseWork};
use crate::Sqlite;
use crate::connection::writer::{Ran, Tx, Work};
use crate::error::Failure;

impl Documents for Sqlite {
    async fn prepare(&self, collection: &Collection) -> Result<()> {
        self.inner.writer.run(Prepare(collection.clone())).await
    }

    async fn load(&self, collection: &Collection, ids: Vec<DocumentId>) -> Result<Vec<Record>> {
        let collection = collection.clone();
        self.inner
            .readers
            .read("load documents from", move |file| {
                let table = table(&stored(file, &collection)?);
                let sql = format!("SELECT id, body, mark, parked FROM {table} WHERE id = ?1");
                let mut statement = file.prepare_cached(&sql)?;
                let mut records = Vec::with_capacity(ids.len());
                for id in &ids {
                    let mut rows = statement.query([id.as_str()])?;
                    if let Some(row) = rows.next()? {
                        records.push(record(row)?);
                    }
                }
                Ok(records)
            })
            .await
    }

    async fn commit(&self, commit: Arc<Commit>) -> Result<CommitOutcome> {
        commit.check()?;
        point!("batch");
        self.inner.writer.run(CommitWork(commit)).await
    }

    async fn scan(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> Result<Vec<Record>> {
        Ok(self.list(collection, "body", after, limit, usize::MAX).await?.0)
    }

    async fn scan_page(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
        bytes: usize,
    ) -> Result<(Vec<Record>, bool)> {
        self.list(collection, "body", after, limit, bytes).await
    }

    async fn parked(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> Result<Vec<Record>> {
        Ok(self.list(collection, "parked", after, limit, usize::MAX).await?.0)
    }

    async fn count(&self, collection: &Collection) -> Result<DocumentCounts> {
        let collection = collection.clone();
        self.inner
            .readers
            .read("count documents in", move |file| {
                let table = table(&stored(file, &collection)?);
                // These counts use the index of ids and the small partial indexes: SQLite reads no
                // documents.
                let sql = format!(
                    "SELECT (SELECT count(*) FROM {table}) - (SELECT count(*) FROM {table} WHERE body IS NULL), \
                     count(*), min(parked ->> '$.since') FROM {table} WHERE parked IS NOT NULL"
                );
                let number = |row: &Row<'_>, column| row.get(column).map(i64::unsigned_abs);
                let mut statement = file.prepare_cached(&sql)?;
                let (documents, parked, since) = statement.query_row([], |row| {
                    Ok((number(row, 0)?, number(row, 1)?, row.get::<_, Option<String>>(2)?))
                })?;
                let parked_since = since.and_then(|since| since.parse().ok());
                Ok(DocumentCounts { documents, parked, parked_since })
            })
            .await
    }

    async fn checkpoint(&self, projection: &Collection) -> Result<Checkpoint> {
        let projection = projection.clone();
        self.inner
            .readers
            .read("read a checkpoint in", move |file| {
                let sql = "SELECT mark, tally FROM leftfold_checkpoints WHERE projection = ?1";
                let mut statement = file.prepare_cached(sql)?;
                let mut rows = statement.query([stored(file, &projection)?.as_str()])?;
                match rows.next()? {
                    Some(row) => Ok(Checkpoint { mark: json(row, 0)?, tally: json(row, 1)? }),
                    None => Ok(Checkpoint::default()),
                }
            })
            .await
    }

    async fn advanced(&self, projection: &Collection, from: &Mark) -> Result<Mark> {
        let (_waiting, mut known) = self.inner.board.wait()?;
        loop {
            // A switch to another generation changes the schema.
            let schema = known.borrow_and_update().schema;
            let name = projection.clone();
            let read = move |file: &Connection| stored(file, &name);
            let stored = self.inner.readers.read("look for a generation in", read).await?;
            let seen = match known.borrow().marks.get(&stored) {
                Some((mark, _)) if mark != from && mark.covers(from) => return Ok(mark.clone()),
                Some((_, changes)) => *changes,
                None => 0,
            };
            let at = self.checkpoint(projection).await?.mark;
            if at != *from {
                return Ok(at);
            }
            // The wait can't fail: this handle keeps the board alive.
            let changes =
                |marks: &HashMap<_, (_, u64)>| marks.get(&stored).map_or(0, |(_, changes)| *changes);
            let _ = known.wait_for(|known| changes(&known.marks) != seen || known.schema != schema).await;
        }
    }

    async fn claim(&self, projection: &Collection, owner: &str, lease: Duration) -> Result<Claim> {
        let work = ClaimWork { projection: projection.clone(), owner: owner.to_owned(), lease };
        self.inner.writer.run(work).await
    }

    async fn release(&self, projection: &Collection, owner: &str) -> Result<()> {
        let work = ReleaseWork { projection: projection.clone(), owner: owner.to_owned() };
        self.inner.writer.run(work).await
    }

    async fn generations(&self, collection: &Collection) -> Result<Generations> {
        let collection = collection.clone();
        let read = move |file: &Connection| generations::known(file, &collection);
        self.inner.readers.read("look for generations in", read).await
    }

    async fn put_generations(&self, collection: &Collection, seen: u64, next: Generations) -> Result<bool> {
        self.inner.writer.run(PutWork { collection: collection.clone(), seen, next }).await
    }

    async fn drop_generation(&self, generation: &Collection) -> Result<()> {
        self.inner.writer.run(DropWork(generation.clone())).await
    }
}

impl Sqlite {
    /// Returns the records in which a column is set, by id, and whether there may be more beyond
    /// the limits.
    async fn list(
        &self,
        collection: &Collection,
        column: &'static str,
        after: Option<DocumentId>,
        limit: usize,
        bytes: usize,
    ) -> Result<(Vec<Record>, bool)> {
        let collection = collection.clone();
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        self.inner
            .readers
            .read("list documents in", move |file| {
                let sql = format!(
                    "SELECT id, body, mark, parked FROM {} WHERE {column} IS NOT NULL AND id > ?1 ORDER BY id LIMIT ?2",
                    table(&stored(file, &collection)?)
                );
                let mut statement = file.prepare_cached(&sql)?;
                // No id is empty, so all ids sort after the empty text.
                let mut rows =
                    statement.query(params![after.as_ref().map_or("", DocumentId::as_str), most])?;
                let (mut records, mut left) = (Vec::new(), bytes);
                while let Some(row) = rows.next()? {
                    let record = record(row)?;
                    if !record.fits(records.is_empty(), &mut left) {
                        return Ok((records, true));
                    }
                    records.push(record);
                }
                let is_full = records.len() == limit;
                Ok((records, is_full))
            })
            .await
    }
}

struct CommitWork(Arc<Commit>);

impl Work for CommitWork {
    type Answer = Result<CommitOutcome>;

    const DOING: &'static str = "commit documents to";

    fn bytes(&self) -> usize {
        let body = |write: &DocumentWrite| write.record.body.as_ref().map_or(0, |body| body.as_str().len());
        self.0.changes.iter().flat_map(|changes| &changes.writes).map(|write| body(write) + 128).sum()
    }

    fn has_steps(&self) -> bool {
        true
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let mut conflict = CommitConflict::default();
        if let Some(advance) = &self.0.advance
            && !step(tx.connection, advance)?
        {
            conflict.checkpoint = true;
            return Ok(Ran::Undo(Ok(CommitOutcome::Conflict(conflict))));
        }
        point!("checkpoint-moved");
        for changes in &self.0.changes {
            write(tx.connection, changes, &mut conflict)?;
        }
        if conflict != CommitConflict::default() {
            return Ok(Ran::Undo(Ok(CommitOutcome::Conflict(conflict))));
        }
        point!("documents-written");
        tx.wrote_documents |= !self.0.changes.is_empty();
        if let Some(Advance { projection, to, .. }) = &self.0.advance {
            tx.marks.push((stored(tx.connection, projection)?, to.mark.clone()));
        }
        Ok(Ran::Keep(Ok(CommitOutcome::Applied)))
    }

    fn failed(error: Error) -> Self::Answer {
        if error.is_unknown() { Ok(CommitOutcome::Unknown(error)) } else { Err(error) }
    }
}

/// Moves a checkpoint if it is at the expected mark. A missing checkpoint counts as the initial
/// mark.
fn step(connection: &Connection, advance: &Advance) -> Result<bool, Failure> {
    let sql = if advance.from == Mark::default() {
        "INSERT INTO leftfold_checkpoints (projection, mark, tally) VALUES (?1, ?2, ?3) \
         ON CONFLICT (projection) DO UPDATE SET mark = excluded.mark, tally = excluded.tally WHERE mark = ?4"
    } else {
        "UPDATE leftfold_checkpoints SET mark = ?2, tally = ?3 WHERE projection = ?1 AND mark = ?4"
    };
    let Advance { projection, from, to } = advance;
    let projection = stored(connection, projection)?;
    let values = params![projection.as_str(), to.mark.to_string(), text(&to.tally)?, from.to_string()];
    Ok(connection.prepare_cached(sql)?.execute(values)? == 1)
}

/// Writes each document whose guard holds, and records the others as conflicts.
fn write(
    connection: &Connection,
    changes: &CollectionWrites,
    conflict: &mut CommitConflict,
) -> Result<(), Failure> {
    let table = table(&stored(connection, &changes.collection)?);
    let mut insert = connection.prepare_cached(&format!(
        "INSERT INTO {table} (id, body, mark, parked) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (id) DO NOTHING"
    ))?;
    let mut update = connection.prepare_cached(&format!(
        "UPDATE {table} SET body = ?2, mark = ?3, parked = ?4 WHERE id = ?1 AND mark = ?5 AND parked IS ?6"
    ))?;
    for DocumentWrite { expected, record } in &changes.writes {
        let Record { id, header, body } = record;
        let body = body.as_ref().map(Json::as_str);
        let (mark, parked) = (header.mark.to_string(), header.parked.as_ref().map(text).transpose()?);
        let written = match expected {
            None => insert.execute(params![id.as_str(), body, mark, parked])?,
            Some(was) => {
                let was_parked = was.parked.as_ref().map(text).transpose()?;
                update.execute(params![id.as_str(), body, mark, parked, was.mark.to_string(), was_parked])?
            }
        };
        if written != 1 {
            conflict.documents.push((changes.collection.clone(), id.clone()));
        }
        point!("document-written");
    }
    Ok(())
}

/// Returns the marks of all checkpoints.
pub(crate) fn all_marks(connection: &Connection) -> Result<Vec<(Collection, Mark)>, Failure> {
    let mut statement = connection.prepare_cached("SELECT projection, mark FROM leftfold_checkpoints")?;
    let mut rows = statement.query([])?;
    let mut marks = Vec::new();
    while let Some(row) = rows.next()? {
        if let Ok(projection) = Collection::from_stored(row.get_ref(0)?.as_str()?) {
            marks.push((projection, json(row, 1)?));
        }
    }
    Ok(marks)
}

/// Serializes a value to its unique JSON text.
pub(crate) fn text(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::refused("report this", error.to_string()))
}

pub(crate) fn json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Result<T, Failure> {
    serde_json::from_str(row.get_ref(column)?.as_str()?).map_err(|error| Failure::damaged(error.to_string()))
}

fn record(row: &Row<'_>) -> Result<Record, Failure> {
    let parked = match row.get_ref(3)?.as_str_or_null()? {
        Some(_) => Some(json(row, 3)?),
        None => None,
    };
    Ok(Record {
        id: DocumentId::stored(row.get_ref(0)?.as_str()?),
        header: Header { mark: json(row, 2)?, parked },
        body: body(row.get_ref(1)?)?,
    })
}

/// Decodes a stored body. A body that is not valid text must not prevent others from being read.
fn body(value: ValueRef<'_>) -> Result<Option<Json>, Failure> {
    Ok(value.as_bytes_or_null()?.map(|bytes| match str::from_utf8(bytes) {
        Ok(text) => Json::stored(text),
        Err(_) => Json::damaged(bytes),
    }))
}
