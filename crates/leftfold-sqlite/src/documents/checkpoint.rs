//! Checkpoints: the mark that a projection has folded up to.

use std::collections::HashMap;

use leftfold::documents::{Advance, Checkpoint};
use leftfold::{Collection, Documents as _, Mark, Result};
use rusqlite::{Connection, params};

use super::generations::stored;
use crate::Sqlite;
use crate::encoding::{json, text};
use crate::error::Failure;

/// Reads the checkpoint of a projection. A missing one is the initial checkpoint.
pub(super) fn read(file: &Connection, projection: &Collection) -> Result<Checkpoint, Failure> {
    let sql = "SELECT mark, tally FROM leftfold_checkpoints WHERE projection = ?1";
    let mut statement = file.prepare_cached(sql)?;
    let mut rows = statement.query([stored(file, projection)?.as_str()])?;
    match rows.next()? {
        Some(row) => Ok(Checkpoint { mark: json(row, 0)?, tally: json(row, 1)? }),
        None => Ok(Checkpoint::default()),
    }
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

/// Moves a checkpoint if it is at the expected mark. A missing checkpoint counts as the initial
/// mark.
pub(super) fn advance(connection: &Connection, advance: &Advance) -> Result<bool, Failure> {
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

impl Sqlite {
    /// Waits until the mark of a projection differs from `from`, and returns it.
    pub(super) async fn wait_for_mark(&self, projection: &Collection, from: &Mark) -> Result<Mark> {
        let (_waiting, mut known) = self.inner.board.wait()?;
        loop {
            // A switch to another generation changes the schema.
            let schema = known.borrow_and_update().schema;
            let name = projection.clone();
            let read = move |file: &Connection| stored(file, &name);
            let stored = self.inner.readers.read("read the generations in", read).await?;
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
}
