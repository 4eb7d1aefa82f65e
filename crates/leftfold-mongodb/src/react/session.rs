//! Tasks and documents in the user's transaction: the handler's writes and the task's completion
//! commit together.

use bson::{Document, RawDocumentBuf, doc};
use leftfold::react::{DocumentSource, FoundDocument, Task, TaskChange, TaskKey};
use leftfold::{DocumentId, Error, Result};
use mongodb::ClientSession;

use super::documents::{decode as document, key_of};
use super::task::{decode, encode, guard, key};
use crate::error::{Failure, sourced};
use crate::schema::{TASKS, records};
use crate::{Base, Mongo};

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
        find.await.map_err(|trouble| trouble.into_error("read a task in", &base.place))
    }

    /// Changes a task in a transaction, if its version is the one that the change was computed
    /// from. Returns whether it is. The change takes effect when the transaction commits.
    pub async fn save_task_in(&self, session: &mut ClientSession, change: TaskChange) -> Result<bool> {
        let base = &self.inner.base;
        let save = base.save_task_in(session, change);
        let saved = save.await.map_err(|trouble| trouble.into_error("keep a task in", &base.place));
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
        find.await.map_err(|trouble| trouble.into_error("read a document in", &base.place))
    }
}

/// A failure: an error of the driver, or unreadable data.
enum Trouble {
    Driver(mongodb::error::Error),
    Other(Failure),
}

impl Trouble {
    fn into_error(self, doing: &str, place: &str) -> Error {
        match self {
            Self::Driver(error) => sourced(error, doing, place),
            Self::Other(failure) => failure.to_error(doing, place),
        }
    }
}

impl From<mongodb::error::Error> for Trouble {
    fn from(error: mongodb::error::Error) -> Self {
        Self::Driver(error)
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Other(failure)
    }
}

impl Base {
    async fn task_in(&self, session: &mut ClientSession, task: &TaskKey) -> Result<Option<Task>, Trouble> {
        let tasks = self.db.collection::<RawDocumentBuf>(TASKS);
        let found = tasks.find_one(doc! { "_id": key(task) }).session(session).await?;
        Ok(found.map(|found| decode(&found)).transpose()?)
    }

    async fn save_task_in(&self, session: &mut ClientSession, change: TaskChange) -> Result<bool, Trouble> {
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
    ) -> Result<Option<FoundDocument>, Trouble> {
        let Some(key) = key_of(on, id) else { return Ok(None) };
        let name = match on {
            DocumentSource::Projection(collection) => {
                records(&self.named_in(&mut *session, collection).await?)
            }
            DocumentSource::External(collection) => collection.as_str().to_owned(),
        };
        let documents = self.db.collection::<RawDocumentBuf>(&name);
        let Some(found) = documents.find_one(doc! { "_id": key }).session(session).await? else {
            return Ok(None);
        };
        Ok(document(on, &found))
    }
}
