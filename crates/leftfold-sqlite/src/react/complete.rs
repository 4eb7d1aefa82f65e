//! Completing a task in a transaction of the handler: the handler's writes and the task's
//! completion commit together.

use std::path::Path;

use leftfold::react::{Context, DocumentSource, FoundDocument, NotCurrent, Task, TaskChange, TaskKey};
use leftfold::{DocumentId, Error, Result};
use rusqlite::Connection;
use serde::de::DeserializeOwned;

use super::documents;
use super::tasks::{self, Statements, Write};
use crate::error::Failure;

/// The operations of a [`Context`] in a SQLite transaction. The handler starts it on its own
/// connection to the same file. Do not keep a transaction open while waiting: do everything at
/// once, on a blocking thread.
///
/// ```
/// use leftfold::react::{Context, HandlerError};
/// use leftfold_sqlite::InTransaction as _;
/// use rusqlite::{Connection, TransactionBehavior};
///
/// # #[derive(serde::Deserialize)] struct Order { total: i64 }
/// async fn book(ctx: Context<Order>) -> Result<(), HandlerError> {
///     tokio::task::spawn_blocking(move || -> Result<(), HandlerError> {
///         let mut books = Connection::open("shop.db")?;
///         let transaction = books.transaction_with_behavior(TransactionBehavior::Immediate)?;
///         let order = ctx.document_in(&transaction)?;
///         transaction.execute("INSERT INTO payments VALUES (?1, ?2)", (ctx.id().as_str(), order.total))?;
///         ctx.complete_in(&transaction)?;
///         Ok(transaction.commit()?)
///     })
///     .await?
/// }
/// ```
pub trait InTransaction<D> {
    /// Marks the task as done when the transaction commits, and only then. This is exactly-once,
    /// even if another worker takes the task over. Fails if the task was taken over; do not commit
    /// then.
    fn complete_in(&self, transaction: &Connection) -> Result<()>;

    /// Returns the document as the transaction sees it, if the task was planned for it as it is
    /// now. See [`Context::document`].
    fn document_in(&self, transaction: &Connection) -> Result<D, NotCurrent>
    where
        D: DeserializeOwned;
}

impl<D> InTransaction<D> for Context<D> {
    fn complete_in(&self, transaction: &Connection) -> Result<()> {
        let task = task_in(transaction, &self.task().key)?.ok_or_else(|| self.lost())?;
        let seen = task.version;
        let done = self.complete(task).ok_or_else(|| self.lost())?;
        if save_task_in(transaction, TaskChange::Update(seen, done))? { Ok(()) } else { Err(self.lost()) }
    }

    fn document_in(&self, transaction: &Connection) -> Result<D, NotCurrent>
    where
        D: DeserializeOwned,
    {
        let Some(on) = self.on() else { return Err(NotCurrent::Stale) };
        self.current(document_in(transaction, on, self.id())?)
    }
}

/// Returns the task as of this transaction. [`Sqlite`](crate::Sqlite) must have opened the file
/// before.
///
/// Begin the transaction as a writing one
/// ([`Immediate`](rusqlite::TransactionBehavior::Immediate)). No other writer can then change the
/// task before [`save_task_in`] saves it.
///
/// ```
/// use leftfold::react::{TaskChange, TaskMoment, RunOutcome, Rules, TaskKey};
/// use leftfold_sqlite::{save_task_in, task_in};
/// use rusqlite::{Connection, TransactionBehavior};
///
/// /// Books a payment, exactly once, however often the task is run.
/// fn book(file: &mut Connection, key: &TaskKey, epoch: u64, rules: &Rules, moment: TaskMoment) -> leftfold::Result<bool> {
///     let books = |error: rusqlite::Error| leftfold::Error::new(leftfold::Kind::Store, error.to_string());
///     let transaction = file.transaction_with_behavior(TransactionBehavior::Immediate).map_err(books)?;
///     let Some(task) = task_in(&transaction, key)? else { return Ok(false) };
///     let seen = task.version;
///     // If the claim no longer stands, nothing is booked.
///     let Some(done) = task.finish(epoch, RunOutcome::Done, rules, moment) else { return Ok(false) };
///     transaction.execute("INSERT INTO payments VALUES (?1)", [key.document.as_str()]).map_err(books)?;
///     if !save_task_in(&transaction, TaskChange::Update(seen, done))? {
///         return Ok(false);
///     }
///     transaction.commit().map_err(books)?;
///     Ok(true)
/// }
/// ```
pub fn task_in(transaction: &Connection, key: &TaskKey) -> Result<Option<Task>> {
    tasks::load(transaction, key).map_err(|failure| error("load a task from", transaction, &failure))
}

/// Changes a task in this transaction, if its version is the one that the change was computed from.
/// Returns whether it did; if not, roll back.
///
/// [`Sqlite`](crate::Sqlite) must have opened the file before. See [`task_in`] for an example.
pub fn save_task_in(transaction: &Connection, change: TaskChange) -> Result<bool> {
    let save = || Statements::new(transaction)?.write(&Write::new(change)?);
    let saved = save().map_err(|failure| error("save a task in", transaction, &failure));
    point!("task-saved-inside");
    saved
}

/// Returns the document as of this transaction, if it exists.
///
/// [`Sqlite`](crate::Sqlite) must have opened the file before.
pub fn document_in(
    transaction: &Connection,
    on: &DocumentSource,
    id: &DocumentId,
) -> Result<Option<FoundDocument>> {
    let found = documents::find(transaction, on, vec![id.clone()], usize::MAX);
    let found = found.map_err(|failure| error("load a document from", transaction, &failure))?;
    Ok(found.documents.into_iter().next())
}

fn error(doing: &str, transaction: &Connection, failure: &Failure) -> Error {
    let path = transaction.path().filter(|path| !path.is_empty());
    failure.to_error(doing, Path::new(path.unwrap_or("a database in memory")))
}
