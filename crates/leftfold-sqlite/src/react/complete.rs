//! Completing a task in a transaction of the handler: the handler's writes and the task's
//! completion commit together.

use leftfold::Result;
use leftfold::react::{Context, NotCurrent, TaskChange};
use rusqlite::Connection;
use serde::de::DeserializeOwned;

use super::inside::{document_in, save_task_in, task_in};

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
