//! Completing a task in a transaction of the handler: the handler's writes and the task's
//! completion commit together.

use std::future::Future;

use bson::{Document, RawDocumentBuf, doc};
use leftfold::react::{
    Context, DocumentSource, FoundDocument, HandlerError, NotCurrent, Task, TaskChange, TaskKey,
};
use leftfold::{DocumentId, Error, Result};
use mongodb::ClientSession;
use mongodb::error::TRANSIENT_TRANSACTION_ERROR;
use serde::de::DeserializeOwned;

use super::documents::{decode as document, key_of};
use super::record::{decode, encode, guard, key};
use crate::Mongo;
use crate::connection::Base;
use crate::error::{Failure, sourced};
use crate::schema::{TASKS, records};

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
        if let Some(driver_error) = error.downcast_ref::<mongodb::error::Error>() {
            return driver_error.contains_label(TRANSIENT_TRANSACTION_ERROR);
        }
        cause = error.source();
    }
    false
}

/// # Completing a task in a transaction
///
/// These methods take a session with a running transaction. Its client must be the one of
/// [`database`](Mongo::database):
///
/// ```no_run
/// # async fn complete(store: leftfold_mongodb::Mongo, change: leftfold::react::TaskChange) -> Result<(), Box<dyn std::error::Error>> {
/// let mut session = store.database().client().start_session().await?;
/// session.start_transaction().await?;
/// // … what the handler writes, in this session …
/// if store.save_task_in(&mut session, change).await? {
///     session.commit_transaction().await?;
/// } else {
///     session.abort_transaction().await?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// On a conflict, MongoDB aborts the transaction. The error is then
/// [transient](Error::is_transient), and its source is the driver's error with its labels. Run the
/// whole transaction again.
impl Mongo {
    /// Returns a task, as the transaction sees it.
    pub async fn task_in(&self, session: &mut ClientSession, key: &TaskKey) -> Result<Option<Task>> {
        let base = &self.inner.base;
        let find = base.task_in(session, key);
        find.await.map_err(|error| error.into_error("load a task from", &base.place))
    }

    /// Changes a task in a transaction, if its version is the one that the change was computed
    /// from. Returns whether it is. The change takes effect when the transaction commits.
    pub async fn save_task_in(&self, session: &mut ClientSession, change: TaskChange) -> Result<bool> {
        let base = &self.inner.base;
        let save = base.save_task_in(session, change);
        let saved = save.await.map_err(|error| error.into_error("save a task in", &base.place));
        point!("task-saved-inside");
        saved
    }

    /// Returns a document in the form that reactions see, as of the transaction.
    pub async fn document_in(
        &self,
        session: &mut ClientSession,
        on: &DocumentSource,
        id: &DocumentId,
    ) -> Result<Option<FoundDocument>> {
        let base = &self.inner.base;
        let find = base.document_in(session, on, id);
        find.await.map_err(|error| error.into_error("load a document from", &base.place))
    }
}

/// A failure: an error of the driver, or unreadable data.
enum TransactionError {
    Driver(mongodb::error::Error),
    Other(Failure),
}

impl TransactionError {
    fn into_error(self, doing: &str, place: &str) -> Error {
        match self {
            Self::Driver(error) => sourced(error, doing, place),
            Self::Other(failure) => failure.to_error(doing, place),
        }
    }
}

impl From<mongodb::error::Error> for TransactionError {
    fn from(error: mongodb::error::Error) -> Self {
        Self::Driver(error)
    }
}

impl From<Failure> for TransactionError {
    fn from(failure: Failure) -> Self {
        Self::Other(failure)
    }
}

impl Base {
    async fn task_in(
        &self,
        session: &mut ClientSession,
        task: &TaskKey,
    ) -> Result<Option<Task>, TransactionError> {
        let tasks = self.db.collection::<RawDocumentBuf>(TASKS);
        let found = tasks.find_one(doc! { "_id": key(task) }).session(session).await?;
        Ok(found.map(|found| decode(&found)).transpose()?)
    }

    async fn save_task_in(
        &self,
        session: &mut ClientSession,
        change: TaskChange,
    ) -> Result<bool, TransactionError> {
        let tasks = self.db.collection::<RawDocumentBuf>(TASKS);
        match change {
            TaskChange::Insert(task) => {
                let mut new = Document::try_from(encode(&task)?.as_ref()).map_err(Failure::from)?;
                new.remove("_id");
                // A plain insert of an existing document would abort the transaction.
                let insert = tasks.update_one(doc! { "_id": key(&task.key) }, doc! { "$setOnInsert": new });
                Ok(insert.upsert(true).session(session).await?.upserted_id.is_some())
            }
            TaskChange::Update(seen, task) => {
                let replace = tasks.replace_one(guard(&task.key, seen), encode(&task)?);
                Ok(replace.session(session).await?.matched_count == 1)
            }
            TaskChange::Delete(seen, key) => {
                let delete = tasks.delete_one(guard(&key, seen));
                Ok(delete.session(session).await?.deleted_count == 1)
            }
        }
    }

    async fn document_in(
        &self,
        session: &mut ClientSession,
        on: &DocumentSource,
        id: &DocumentId,
    ) -> Result<Option<FoundDocument>, TransactionError> {
        let Some(key) = key_of(on, id) else { return Ok(None) };
        let name = match on {
            DocumentSource::Projection(collection) => {
                records(&self.named_in(&mut *session, collection).await?)
            }
            DocumentSource::External(plain) => plain.as_str().to_owned(),
        };
        let documents = self.db.collection::<RawDocumentBuf>(&name);
        let Some(found) = documents.find_one(doc! { "_id": key }).session(session).await? else {
            return Ok(None);
        };
        Ok(document(on, &found))
    }
}
