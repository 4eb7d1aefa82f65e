//! The store interface of reactions: a store reports changed documents, reads them, and keeps
//! tasks.
//!
//! Stores decide nothing. Decisions are made elsewhere, over plain values. A store writes a task
//! only if it still has the version from which the change was computed.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::time::Duration;

use jiff::Timestamp;
use leftfold_filter::Value;
use serde::{Deserialize, Serialize};

use crate::documents::Collection;
use crate::error::{Invalid, Result};
use crate::event::DocumentId;
use crate::json::Json;
use crate::log::Log;
use crate::react::task::{State, Suspicion, Task, TaskKey};

/// The place where documents are stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DocumentSource {
    /// The documents of a projection.
    Projection(Collection),
    /// The documents of a collection or table that any program writes to.
    Plain(ExternalCollection),
}

impl fmt::Display for DocumentSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Projection(collection) => collection.fmt(f),
            Self::Plain(plain) => write!(f, "plain {}", plain.0),
        }
    }
}

/// The name of a collection or table that Leftfold does not own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ExternalCollection(String);

impl ExternalCollection {
    /// Checks the name: letters, digits, `_`, `-` and `.`, without the reserved prefix `leftfold`.
    pub fn new(name: impl Into<String>) -> Result<Self, Invalid> {
        let name = name.into();
        let fits = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.is_empty() || name.len() > 120 || !name.chars().all(fits) || name.starts_with("leftfold") {
            let expected = "1 to 120 letters, digits, _, - and ., not beginning with leftfold";
            return Err(Invalid::new("collection", &name, expected));
        }
        Ok(Self(name))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ExternalCollection {
    type Error = Invalid;

    fn try_from(name: String) -> Result<Self, Invalid> {
        Self::new(name)
    }
}

impl From<ExternalCollection> for String {
    fn from(plain: ExternalCollection) -> Self {
        plain.0
    }
}

/// A batch of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedChanges {
    /// The documents that were written or deleted, each once.
    pub documents: BTreeMap<DocumentSource, BTreeSet<DocumentId>>,
    /// The place from which the feed continues once all these changes are processed.
    pub through: String,
}

/// An item of a feed of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedItem {
    /// Changed documents; empty if nothing changed for a while.
    Changes(FeedChanges),
    /// The changes since the feed's starting place are no longer available: all documents must be
    /// compared.
    Lost(String),
}

/// A feed of document changes.
pub trait DocumentFeed: Send {
    /// Returns the next changes, at most `most`. Waits for changes, but no longer than `patience`.
    /// Cancelling the call loses nothing.
    fn next(&mut self, most: usize, patience: Duration) -> impl Future<Output = Result<FeedItem>> + Send;
}

/// A conditional write of a task, with the version from which it was computed.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskChange {
    /// Inserts the task; it must not exist.
    Insert(Task),
    /// Replaces the task; it must have this version.
    Update(u64, Task),
    /// Deletes the task; it must have this version.
    Delete(u64, TaskKey),
}

impl TaskChange {
    /// Returns the key of the task.
    pub fn key(&self) -> &TaskKey {
        match self {
            Self::Insert(task) | Self::Update(_, task) => &task.key,
            Self::Delete(_, key) => key,
        }
    }
}

/// A request for due tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedTasks {
    /// The reaction.
    pub reaction: String,
    /// The version of the reaction's code in this process. Tasks that need a later one are left
    /// out.
    pub version: u32,
    /// The maximum number of tasks.
    pub most: usize,
    /// The suspicion under which they wait.
    pub suspicion: Suspicion,
}

/// Tasks that can be claimed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DueTasks {
    /// The tasks of each reaction, the longest due first.
    pub tasks: Vec<Task>,
    /// The time at which the next wanted task becomes due, if none of its reaction is due now.
    /// `None` if there is no such task.
    pub next: Option<Timestamp>,
    /// The store's time.
    pub now: Timestamp,
    /// The latest code version of each wanted reaction that is registered.
    pub codes: BTreeMap<String, u32>,
    /// The time at which the first suspect of each level is due. Counts only reactions for which
    /// tasks without suspicion are wanted and which are neither paused nor throttled.
    pub suspects: BTreeMap<Suspicion, Timestamp>,
}

/// The registration of a reaction, shared by all planners and runners.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Registered {
    /// Its name.
    pub name: String,
    /// A number that differs after each change.
    pub version: u64,
    /// The place of its documents; `None` if it reacts to events or to time only.
    pub on: Option<DocumentSource>,
    /// The filter and the watched values as text, as far as they can be described.
    pub definition: String,
    /// The latest version of its code.
    pub code: u32,
    /// `true` if nobody may claim its tasks.
    pub paused: bool,
    /// The reason for the pause, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_because: Option<String>,
    /// The time until which nobody may claim its tasks.
    pub throttled: Option<Timestamp>,
    /// The progress of a comparison of all documents; `None` if none is under way.
    pub comparing: Option<Comparing>,
}

/// The progress of a comparison of all documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Comparing {
    /// The comparison has not begun.
    #[default]
    ToBegin,
    /// All documents up to this one are compared.
    Documents(DocumentId),
    /// All documents are compared, and the tasks up to this one: some may no longer have a
    /// document.
    Tasks(DocumentId),
}

/// A selection of tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Selects tasks of this reaction.
    pub reaction: Option<String>,
    /// Selects tasks of this document.
    pub document: Option<DocumentId>,
    /// Selects tasks in one of these states; in any state if empty.
    pub states: Vec<State>,
    /// Selects tasks whose last error contains this text, ignoring case.
    pub error: Option<String>,
    /// Selects tasks whose state has not changed since this time.
    pub changed_before: Option<Timestamp>,
}

impl Query {
    /// Returns whether the query selects the task.
    pub fn is(&self, task: &Task) -> bool {
        let error = |wanted: &String| {
            task.error.as_ref().is_some_and(|error| error.to_lowercase().contains(&wanted.to_lowercase()))
        };
        self.reaction.as_ref().is_none_or(|reaction| task.key.reaction == *reaction)
            && self.document.as_ref().is_none_or(|document| task.key.document == *document)
            && (self.states.is_empty() || self.states.contains(&task.state))
            && self.error.as_ref().is_none_or(error)
            && self.changed_before.is_none_or(|before| task.changed_at < before)
    }
}

/// The number of tasks of a reaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Depth {
    /// The number of tasks by state.
    pub states: BTreeMap<State, u64>,
    /// The due time of the task that has been due for longest.
    pub oldest_due: Option<Timestamp>,
}

impl Depth {
    /// Counts a task.
    pub fn count(&mut self, task: &Task, now: Timestamp) {
        *self.states.entry(task.state).or_default() += 1;
        if task.state == State::Pending {
            let due = task.due.filter(|due| *due <= now);
            self.oldest_due = [self.oldest_due, due].into_iter().flatten().min();
        }
    }
}

/// A document as a store read it.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundDocument {
    /// Its id.
    pub id: DocumentId,
    /// Its body, or the reason why it can't be read.
    pub body: Result<Body, String>,
}

impl FoundDocument {
    /// Creates a document that can be read.
    pub fn new(id: DocumentId, body: impl Into<Body>) -> Self {
        Self { id, body: Ok(body.into()) }
    }
}

/// The body of a document: JSON for handlers, and values for filters.
#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    json: Json,
    /// The same body in the store's own types, if the store has more types than JSON.
    value: Option<Value>,
}

impl Body {
    /// Creates the body of a document in a store that has more types than JSON.
    pub fn typed(json: Json, value: Value) -> Self {
        Self { json, value: Some(value) }
    }

    /// Returns the body as JSON.
    pub fn json(&self) -> &Json {
        &self.json
    }

    /// Returns the body as filters and watched paths see it.
    pub fn value(&self) -> Result<Cow<'_, Value>, Invalid> {
        match &self.value {
            Some(value) => Ok(Cow::Borrowed(value)),
            None => Ok(Cow::Owned(self.json.as_str().parse()?)),
        }
    }
}

impl From<Json> for Body {
    fn from(json: Json) -> Self {
        Self { json, value: None }
    }
}

/// The result of reading documents by id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FoundDocuments {
    /// The documents that exist.
    pub documents: Vec<FoundDocument>,
    /// The ids that were not read because of the byte limit. Request these again.
    pub left: Vec<DocumentId>,
    bytes: usize,
}

impl FoundDocuments {
    /// Adds a document.
    pub fn push(&mut self, document: FoundDocument) {
        self.bytes += document.body.as_ref().map_or(0, |body| body.json.as_str().len());
        self.documents.push(document);
    }

    /// Returns whether there is at least one document and the documents together take at least this
    /// many bytes.
    pub fn is_full(&self, bytes: usize) -> bool {
        !self.documents.is_empty() && self.bytes >= bytes
    }
}

/// A store that supports reactions.
pub trait ReactionStore: Log + Clone + Send + Sync + 'static {
    /// The feed of document changes.
    type Feed: DocumentFeed;

    /// Creates the structures needed to follow these documents, if any, and to keep tasks. Leaves
    /// existing structures unchanged.
    fn prepare_reactions(&self, on: &[DocumentSource]) -> impl Future<Output = Result<()>> + Send;

    /// Returns the store's time: one clock for all processes.
    fn time(&self) -> impl Future<Output = Result<Timestamp>> + Send;

    /// Returns the current documents, none older than this call; missing documents are left out.
    /// Stops after about `bytes` bytes, but not before the first document. A document that can't be
    /// read does not affect the others.
    fn current_documents(
        &self,
        on: &DocumentSource,
        ids: Vec<DocumentId>,
        bytes: usize,
    ) -> impl Future<Output = Result<FoundDocuments>> + Send;

    /// Returns ids of documents in order, after an id. Some of these documents may no longer exist.
    fn page_of_ids(
        &self,
        on: &DocumentSource,
        after: Option<DocumentId>,
        most: usize,
    ) -> impl Future<Output = Result<Vec<DocumentId>>> + Send;

    /// Returns a feed of changes of these documents, from a place that a feed named, or from now
    /// on. The order of `on` does not matter.
    fn follow(
        &self,
        on: Vec<DocumentSource>,
        from: Option<String>,
    ) -> impl Future<Output = Result<Self::Feed>> + Send;

    /// Returns whether any of these documents was written or deleted between a place that a feed
    /// named and this call. Also returns `true` if the store can no longer tell.
    fn has_changes(
        &self,
        on: Vec<DocumentSource>,
        after: String,
    ) -> impl Future<Output = Result<bool>> + Send {
        async move {
            let mut feed = self.follow(on, Some(after.clone())).await?;
            let mut place = after;
            loop {
                match feed.next(100, Duration::ZERO).await? {
                    FeedItem::Changes(changes) if !changes.documents.is_empty() => return Ok(true),
                    FeedItem::Changes(changes) if changes.through == place => return Ok(false),
                    // The feed passed only changes of other documents; changes of these may follow.
                    FeedItem::Changes(changes) => place = changes.through,
                    FeedItem::Lost(_) => return Ok(true),
                }
            }
        }
    }

    /// Returns the current tasks; missing ones are left out.
    fn load_tasks(&self, keys: Vec<TaskKey>) -> impl Future<Output = Result<Vec<Task>>> + Send;

    /// Applies each change whose task still has the version from which it was computed. Returns the
    /// keys of the others. After an error the outcome is unknown: read the tasks again.
    fn save_tasks(&self, changes: Vec<TaskChange>) -> impl Future<Output = Result<Vec<TaskKey>>> + Send;

    /// Returns tasks that can be claimed now under the wanted suspicion ([`Task::waits_under`]), of
    /// reactions that are neither paused nor throttled.
    fn due_tasks(&self, wanted: Vec<WantedTasks>) -> impl Future<Output = Result<DueTasks>> + Send;

    /// Returns tasks of these reactions whose documents are due to be checked.
    fn tasks_to_check(
        &self,
        reactions: Vec<String>,
        most: usize,
    ) -> impl Future<Output = Result<DueTasks>> + Send;

    /// Returns tasks of registered reactions, ordered by reaction and document, after a key.
    fn list_tasks(
        &self,
        query: Query,
        after: Option<TaskKey>,
        most: usize,
    ) -> impl Future<Output = Result<Vec<Task>>> + Send;

    /// Returns the number of tasks of each reaction.
    fn task_depths(&self) -> impl Future<Output = Result<BTreeMap<String, Depth>>> + Send;

    /// Returns all registered reactions.
    fn registered(&self) -> impl Future<Output = Result<Vec<Registered>>> + Send;

    /// Writes the registration of a reaction if it has version `seen`, or if it does not exist and
    /// `seen` is `None`. Returns whether it did.
    fn register(&self, seen: Option<u64>, reaction: Registered) -> impl Future<Output = Result<bool>> + Send;

    /// Takes or renews a lease for `length` from now. Returns its number if `owner` holds it. The
    /// number is greater for each new owner and never decreases.
    fn take_lease(
        &self,
        name: &str,
        owner: &str,
        length: Duration,
    ) -> impl Future<Output = Result<Option<u64>>> + Send;

    /// Releases a lease if `owner` holds it.
    fn give_lease(&self, name: &str, owner: &str) -> impl Future<Output = Result<()>> + Send;

    /// Reports a worker as alive for `length` from now. A zero length reports that it has ended.
    fn beat(&self, worker: &str, length: Duration) -> impl Future<Output = Result<()>> + Send;

    /// Returns the workers that are alive by the store's clock.
    fn living(&self) -> impl Future<Output = Result<BTreeSet<String>>> + Send;

    /// Returns the place from which a feed continues.
    fn feed_place(&self, name: &str) -> impl Future<Output = Result<Option<String>>> + Send;

    /// Stores the place from which a feed continues, if the lease of that name still has this
    /// number and is held. Returns whether it did.
    fn put_feed_place(
        &self,
        name: &str,
        lease: u64,
        place: Option<String>,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Wakes all runners, in every process, because tasks may be due.
    fn wake(&self) -> impl Future<Output = Result<()>> + Send;

    /// Waits until [`wake`](Self::wake) was called after the call that returned `since`, or until
    /// `patience` has passed. Returns the number for the next call.
    fn woken(&self, since: u64, patience: Duration) -> impl Future<Output = Result<u64>> + Send;
}
