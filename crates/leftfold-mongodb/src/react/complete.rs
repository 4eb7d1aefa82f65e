//! Completing a task in a transaction of the handler: the handler's writes and the task's
//! completion commit together.

use std::future::Future;

use leftfold::Result;
use leftfold::react::{Context, HandlerError, NotCurrent, TaskChange};
use mongodb::ClientSession;
use mongodb::error::TRANSIENT_TRANSACTION_ERROR;
use serde::de::DeserializeOwned;

use crate::Mongo;

/// The operations of a [`Context`] in a MongoDB transaction. The client of [`Mongo::database`] must
/// start it. Commit soon after completing the task: if a transaction is idle for a second and
/// blocks a writer, Leftfold aborts it as abandoned.
///
/// ```no_run
/// use leftfold::react::{Context, HandlerError};
/// use leftfold_mongodb::{InTransaction as _, Mongo, is_repeatable};
/// use mongodb::ClientSession;
/// use mongodb::bson::{Document, doc};
///
/// # #[derive(serde::Deserialize)] struct Order { total: i64 }
/// async fn book(ctx: Context<Order>, store: Mongo) -> Result<(), HandlerError> {
///     let mut session = store.database().client().start_session().await?;
///     loop {
///         session.start_transaction().await?;
///         match book_in(&ctx, &store, &mut session).await {
///             // Others were in the way, and nothing is written.
///             Err(error) if is_repeatable(&error) && !ctx.is_cancelled() => drop(session.abort_transaction().await),
///             done => return done,
///         }
///     }
/// }
///
/// async fn book_in(ctx: &Context<Order>, store: &Mongo, session: &mut ClientSession) -> Result<(), HandlerError> {
///     let order = ctx.document_in(session).await?;
///     let payments = store.database().collection::<Document>("payments");
///     payments.insert_one(doc! { "order": ctx.id().as_str(), "total": order.total }).session(&mut *session).await?;
///     ctx.complete_in(session).await?;
///     session.commit_transaction().await?;
///     Ok(())
/// }
/// ```
///
/// Return a commit error with an unknown outcome like any other error: the stored task then shows
/// whether the commit happened.
pub trait InTransaction<D> {
    /// Marks the task as done when the transaction commits, and only then. This is exactly-once,
    /// even if the outcome of the commit is unknown or another worker takes the task over. Fails if
    /// the task was taken over; do not commit then.
    fn complete_in(&self, session: &mut ClientSession) -> impl Future<Output = Result<()>> + Send;

    /// Returns the document as the transaction sees it, if the task was planned for it as it is
    /// now. See [`Context::document`].
    fn document_in(&self, session: &mut ClientSession) -> impl Future<Output = Result<D, NotCurrent>> + Send
    where
        D: DeserializeOwned;
}

impl<D: 'static> InTransaction<D> for Context<D> {
    async fn complete_in(&self, session: &mut ClientSession) -> Result<()> {
        let store = self.store::<Mongo>().ok_or_else(|| self.lost())?;
        let task = store.task_in(session, &self.task().key).await?.ok_or_else(|| self.lost())?;
        let seen = task.version;
        let done = self.complete(task).ok_or_else(|| self.lost())?;
        if store.save_task_in(session, TaskChange::Update(seen, done)).await? {
            Ok(())
        } else {
            Err(self.lost())
        }
    }

    async fn document_in(&self, session: &mut ClientSession) -> Result<D, NotCurrent>
    where
        D: DeserializeOwned,
    {
        let (Some(store), Some(on)) = (self.store::<Mongo>(), self.on()) else {
            return Err(NotCurrent::Stale);
        };
        let document = store.document_in(session, on, self.id()).await?;
        self.current(document)
    }
}

/// Returns whether a transaction failed because of a conflict. Such a transaction wrote nothing and
/// may be run again at once. The driver marks the error with a label; this finds it anywhere among
/// the causes.
pub fn is_repeatable(error: &HandlerError) -> bool {
    let mut cause = Some(error.cause());
    while let Some(error) = cause {
        if let Some(said) = error.downcast_ref::<mongodb::error::Error>() {
            return said.contains_label(TRANSIENT_TRANSACTION_ERROR);
        }
        cause = error.source();
    }
    false
}
