//! Completing a task in a transaction of its handler's own: what the handler writes and that the task is done become true together.

use std::future::Future;

use leftfold::Result;
use leftfold::react::{Change, Context, HandlerError, NotCurrent};
use mongodb::ClientSession;
use mongodb::error::TRANSIENT_TRANSACTION_ERROR;
use serde::de::DeserializeOwned;

use crate::Mongo;

/// What a [`Context`] can do in a transaction of MongoDB's, begun by the client of [`Mongo::database`]. Commit soon after the task is completed in
/// it: a transaction in which nothing happens for a second is taken for one whose process has died, if it stands in somebody's way.
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
/// An error of the commit whose outcome is unknown is returned as any other: the task itself tells then whether it was committed.
pub trait InTransaction<D> {
    /// Has the task be done when the transaction is committed, and not otherwise: exactly once, also if the outcome of the commit is unknown,
    /// or somebody else has taken the task over. Fails if it is taken over; then do not commit.
    fn complete_in(&self, session: &mut ClientSession) -> impl Future<Output = Result<()>> + Send;

    /// The document as the transaction sees it, if it still is what the task was planned for. See [`Context::document`].
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
        if store.save_task_in(session, Change::Update(seen, done)).await? { Ok(()) } else { Err(self.lost()) }
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

/// Whether a transaction failed because others were in its way: it has written nothing, and may be run again at once. The driver says so by a
/// label of its error, wherever that is among the causes.
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
