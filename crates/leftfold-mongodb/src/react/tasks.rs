//! Tasks: loading them, and saving each under its version. A batch needs no more commands than one
//! task.
//!
//! Saving needs no transaction, because each task has its own guard. The server names each refused
//! insert. For updates and deletes it only returns the number that matched. If some did not, one
//! query finds them, because no version occurs twice. The result also names a task that another
//! writer changed right after this one. The caller finds out when it reads the task again.

use std::collections::HashMap;

use bson::raw::cstr;
use bson::{RawDocumentBuf, doc};
use leftfold::Result;
use leftfold::react::{Task, TaskChange, TaskKey};

use super::record::{any_of, decode, decode_key, encode, guard};
use crate::connection::bulk::{Statements, Verb, matched, parse};
use crate::connection::{Base, MAX_IDS, batch, with_timeout};
use crate::error::Failure;
use crate::schema::TASKS;

/// Changes of tasks, ready to be sent.
#[derive(Default)]
struct Batch {
    inserts: Vec<Statements>,
    updates: Vec<Statements>,
    deletes: Vec<Statements>,
}

impl Base {
    pub(super) async fn load_tasks(&self, keys: &[TaskKey]) -> Result<Vec<Task>, Failure> {
        self.catch_up().await?;
        let mut all = Vec::with_capacity(keys.len());
        for keys in keys.chunks(MAX_IDS) {
            let tasks = self.db.collection::<RawDocumentBuf>(TASKS);
            let mut found = tasks.find(any_of(keys)).batch_size(batch(keys.len())).await?;
            while found.advance().await? {
                all.push(decode(found.current())?);
            }
        }
        Ok(all)
    }

    /// Makes the changes whose guards hold, and returns the keys of the others.
    pub(super) async fn save_tasks(&self, changes: &[TaskChange]) -> Result<Vec<TaskKey>> {
        let failed = |failure: Failure| failure.to_error("save tasks in", &self.place);
        let batch = pack(changes).map_err(failed)?;
        // After an error, the commands may have been written in whole or in part.
        let send = self.unblocked(self.send(changes, &batch));
        with_timeout(send).await.map_err(|failure| failed(failure.unknown()))
    }

    async fn send(&self, changes: &[TaskChange], batch: &Batch) -> Result<Vec<TaskKey>, Failure> {
        let mut refused = self.insert_tasks(changes, batch).await?;
        if !batch.inserts.is_empty() {
            point!("tasks-inserted");
        }
        let updated = self.run_statements(Verb::Update, &batch.updates).await?;
        point!("tasks-updated");
        let deleted = self.run_statements(Verb::Delete, &batch.deletes).await?;
        let to_update: Vec<_> = changes.iter().filter_map(update).collect();
        let to_delete: Vec<_> = changes.iter().filter_map(deletion).collect();
        if updated == to_update.len() && deleted == to_delete.len() {
            return Ok(refused);
        }
        let keys = to_update.iter().map(|(key, _)| *key).chain(to_delete.iter().copied());
        let stored = self.versions(keys).await?;
        let (ours, others): (Vec<_>, Vec<_>) =
            to_update.into_iter().partition(|(key, version)| stored.get(key) == Some(version));
        refused.extend(others.into_iter().map(|(key, _)| key.clone()));
        // An earlier attempt made some of these very updates, and the reply does not show which.
        // The caller reads the tasks again and sees that they are stored.
        if updated < ours.len() {
            refused.extend(ours.into_iter().map(|(key, _)| key.clone()));
        }
        let (there, gone): (Vec<_>, Vec<_>) = to_delete.into_iter().partition(|key| stored.contains_key(key));
        refused.extend(there.into_iter().cloned());
        // Some tasks were deleted before, and the reply does not show which. The caller reads again
        // and sees that nothing is left to do.
        if deleted < gone.len() {
            refused.extend(gone.into_iter().cloned());
        }
        Ok(refused)
    }

    /// Inserts new tasks. Returns the keys of tasks that exist.
    async fn insert_tasks(&self, changes: &[TaskChange], batch: &Batch) -> Result<Vec<TaskKey>, Failure> {
        if batch.inserts.is_empty() {
            return Ok(Vec::new());
        }
        let inserts: Vec<_> = changes
            .iter()
            .filter(|change| matches!(change, TaskChange::Insert(_)))
            .map(TaskChange::key)
            .collect();
        let (mut sent, mut there) = (0, Vec::new());
        for statements in &batch.inserts {
            let command = statements.durable_command(Verb::Insert, TASKS);
            let reply = parse(&self.db.run_raw_command(command).await?)?;
            if let Some((_, failure)) = reply.refused.into_iter().next() {
                return Err(failure);
            }
            there.extend(
                reply.existing.iter().filter_map(|place| inserts.get(sent + place).copied().cloned()),
            );
            sent += statements.count();
        }
        Ok(there)
    }

    /// Sends the commands and returns the number of guards that held.
    async fn run_statements(&self, verb: Verb, commands: &[Statements]) -> Result<usize, Failure> {
        let mut count = 0;
        for statements in commands {
            count += matched(&self.db.run_raw_command(statements.durable_command(verb, TASKS)).await?)?;
        }
        Ok(count)
    }

    /// Returns the versions of the tasks that exist.
    async fn versions(&self, keys: impl Iterator<Item = &TaskKey>) -> Result<HashMap<TaskKey, u64>, Failure> {
        let keys: Vec<_> = keys.collect();
        let tasks = self.db.collection::<RawDocumentBuf>(TASKS);
        let mut versions = HashMap::with_capacity(keys.len());
        for keys in keys.chunks(MAX_IDS) {
            let find = tasks.find(any_of(keys.iter().copied())).projection(doc! { "version": 1 });
            let mut found = find.batch_size(batch(keys.len())).await?;
            while found.advance().await? {
                let stored = found.current();
                let version = stored.get_i64("version")?.cast_unsigned();
                versions.insert(decode_key(stored.get_document("_id")?)?, version);
            }
        }
        Ok(versions)
    }
}

/// Returns the task that a change updates, and its new version.
fn update(change: &TaskChange) -> Option<(&TaskKey, u64)> {
    match change {
        TaskChange::Update(_, task) => Some((&task.key, task.version)),
        TaskChange::Insert(_) | TaskChange::Delete(..) => None,
    }
}

/// Returns the task that a change deletes.
fn deletion(change: &TaskChange) -> Option<&TaskKey> {
    match change {
        TaskChange::Delete(_, key) => Some(key),
        TaskChange::Insert(_) | TaskChange::Update(..) => None,
    }
}

fn pack(changes: &[TaskChange]) -> Result<Batch, Failure> {
    let mut batch = Batch::default();
    for change in changes {
        match change {
            TaskChange::Insert(task) => Statements::push(&mut batch.inserts, encode(task)?),
            TaskChange::Update(seen, task) => {
                let mut update = RawDocumentBuf::new();
                update.append(cstr!("q"), RawDocumentBuf::try_from(&guard(&task.key, *seen))?);
                update.append(cstr!("u"), encode(task)?);
                // Without the hint, the server's query planning takes as long as the update itself.
                update.append(cstr!("hint"), "_id_");
                Statements::push(&mut batch.updates, update);
            }
            TaskChange::Delete(seen, key) => {
                let mut delete = RawDocumentBuf::new();
                delete.append(cstr!("q"), RawDocumentBuf::try_from(&guard(key, *seen))?);
                delete.append(cstr!("limit"), 1);
                Statements::push(&mut batch.deletes, delete);
            }
        }
    }
    Ok(batch)
}
