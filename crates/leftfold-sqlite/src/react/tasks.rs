//! Tasks: loading them, and saving each under its version.

use leftfold::react::{Task, TaskChange, TaskKey};
use leftfold::{Error, Result};
use rusqlite::{CachedStatement, Connection, params};

use super::record::{micros, name};
use crate::connection::{Ran, Tx, Work};
use crate::encoding::{json, text};
use crate::error::Failure;

const LOAD: &str = "SELECT task FROM leftfold_tasks WHERE reaction = ?1 AND document = ?2";
const INSERT: &str = "INSERT INTO leftfold_tasks VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) \
    ON CONFLICT (reaction, document) DO NOTHING";
const UPDATE: &str = "UPDATE leftfold_tasks SET version = ?3, state = ?4, due = ?5, check_at = ?6, needs = ?7, \
    changed_at = ?8, error = ?9, task = ?10, suspicion = ?11 \
    WHERE reaction = ?1 AND document = ?2 AND version = ?12";
const DELETE: &str = "DELETE FROM leftfold_tasks WHERE reaction = ?1 AND document = ?2 AND version = ?3";

/// A change, ready to be written.
pub(super) struct Write {
    change: TaskChange,
    /// The task as JSON; empty for a delete.
    json: String,
}

impl Write {
    pub(super) fn new(change: TaskChange) -> Result<Self, Failure> {
        let json = match &change {
            TaskChange::Insert(task) | TaskChange::Update(_, task) => text(task)?,
            TaskChange::Delete(..) => String::new(),
        };
        Ok(Self { change, json })
    }
}

/// The statements that write tasks.
pub(super) struct Statements<'c> {
    insert: CachedStatement<'c>,
    update: CachedStatement<'c>,
    delete: CachedStatement<'c>,
}

impl<'c> Statements<'c> {
    pub(super) fn new(connection: &'c Connection) -> Result<Self, Failure> {
        Ok(Self {
            insert: connection.prepare_cached(INSERT)?,
            update: connection.prepare_cached(UPDATE)?,
            delete: connection.prepare_cached(DELETE)?,
        })
    }

    /// Makes a change if the task has the version it was computed from. Returns whether it did.
    /// Versions are arbitrary 64-bit numbers: they are only compared.
    pub(super) fn write(&mut self, write: &Write) -> Result<bool, Failure> {
        let written = match &write.change {
            TaskChange::Insert(task) => put(&mut self.insert, task, &write.json, None),
            TaskChange::Update(seen, task) => put(&mut self.update, task, &write.json, Some(*seen)),
            TaskChange::Delete(seen, key) => {
                Ok(self.delete.execute(params![key.reaction, key.document.as_str(), seen.cast_signed()])?)
            }
        };
        Ok(written? == 1)
    }
}

fn put(
    statement: &mut CachedStatement<'_>,
    task: &Task,
    json: &str,
    seen: Option<u64>,
) -> Result<usize, Failure> {
    let due = task.due.filter(|_| task.can_be_due()).map(micros);
    statement.raw_bind_parameter(1, &task.key.reaction)?;
    statement.raw_bind_parameter(2, task.key.document.as_str())?;
    statement.raw_bind_parameter(3, task.version.cast_signed())?;
    statement.raw_bind_parameter(4, name(task.state))?;
    statement.raw_bind_parameter(5, due)?;
    statement.raw_bind_parameter(6, task.check_at.map(micros))?;
    statement.raw_bind_parameter(7, task.needs)?;
    statement.raw_bind_parameter(8, micros(task.changed_at))?;
    statement.raw_bind_parameter(9, task.error.as_deref())?;
    statement.raw_bind_parameter(10, json)?;
    statement.raw_bind_parameter(11, task.waits_under().level())?;
    if let Some(seen) = seen {
        statement.raw_bind_parameter(12, seen.cast_signed())?;
    }
    Ok(statement.raw_execute()?)
}

pub(super) struct SaveWork(pub(super) Vec<Write>);

impl Work for SaveWork {
    type Answer = Result<Vec<TaskKey>>;

    const DOING: &'static str = "save tasks in";

    fn bytes(&self) -> usize {
        self.0.iter().map(|write| write.json.len() + 256).sum()
    }

    fn has_steps(&self) -> bool {
        self.0.len() > 1
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let mut statements = Statements::new(tx.connection)?;
        let mut refused = Vec::new();
        for write in &self.0 {
            if !statements.write(write)? {
                refused.push(write.change.key().clone());
            }
            point!("task-saved");
        }
        point!("tasks-saved");
        Ok(Ran::Keep(Ok(refused)))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

/// Loads one task.
pub(super) fn load(file: &Connection, key: &TaskKey) -> Result<Option<Task>, Failure> {
    let mut statement = file.prepare_cached(LOAD)?;
    let mut rows = statement.query([&key.reaction, key.document.as_str()])?;
    rows.next()?.map(|row| json(row, 0)).transpose()
}
