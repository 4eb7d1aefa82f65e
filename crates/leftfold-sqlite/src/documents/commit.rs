//! Commits: guarded writes in one transaction.
//!
//! A commit moves the checkpoint from its expected mark, then writes every document under its own
//! guard. Each mark and each parked state has exactly one text, so comparing texts compares them.

use std::sync::Arc;

use leftfold::documents::{
    Advance, CollectionWrites, Commit, CommitConflict, CommitOutcome, DocumentWrite, Record,
};
use leftfold::{Error, Json, Result};
use rusqlite::{Connection, params};

use super::checkpoint;
use super::collections::table;
use super::generations::stored;
use crate::connection::{Ran, Tx, Work};
use crate::encoding::text;
use crate::error::Failure;

pub(super) struct CommitWork(pub(super) Arc<Commit>);

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
            && !checkpoint::advance(tx.connection, advance)?
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
