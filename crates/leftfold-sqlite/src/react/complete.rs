//! Completing a task in a transaction of its handler's own: what the handler writes and that the task is done become true together.

use leftfold::Result;
use leftfold::react::{Change, Context, NotCurrent};
use rusqlite::Connection;
use serde::de::DeserializeOwned;

use super::inside::{document_in, save_task_in, task_in};

/// What a [`Context`] can do in a transaction of SQLite's, begun on a connection of the handler's own to the same file. A transaction is not to be
/// kept while others are waited for: do it all in one go, on a thread that may block.
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
    /// Has the task be done when the transaction is committed, and not otherwise: exactly once, also if somebody else has taken the task over.
    /// Fails if it is taken over; then do not commit.
    fn complete_in(&self, transaction: &Connection) -> Result<()>;

    /// The document as the transaction sees it, if it still is what the task was planned for. See [`Context::document`].
    fn document_in(&self, transaction: &Connection) -> Result<D, NotCurrent>
    where
        D: DeserializeOwned;
}

impl<D> InTransaction<D> for Context<D> {
    fn complete_in(&self, transaction: &Connection) -> Result<()> {
        let task = task_in(transaction, &self.task().key)?.ok_or_else(|| self.lost())?;
        let seen = task.version;
        let done = self.complete(task).ok_or_else(|| self.lost())?;
        if save_task_in(transaction, Change::Update(seen, done))? { Ok(()) } else { Err(self.lost()) }
    }

    fn document_in(&self, transaction: &Connection) -> Result<D, NotCurrent>
    where
        D: DeserializeOwned,
    {
        let Some(on) = self.on() else { return Err(NotCurrent::Stale) };
        self.current(document_in(transaction, on, self.id())?)
    }
}
