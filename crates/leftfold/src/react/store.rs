//! What a store does for reactions: it tells which documents have changed, reads them, and keeps tasks.
//!
//! All that is decided is decided elsewhere, over plain values; a store keeps a task only if it is still what the change was computed from.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::task::{State, Suspicion, Task, TaskKey};
use super::value::Value;
use crate::documents::Collection;
use crate::error::{Invalid, Result};
use crate::event::DocumentId;
use crate::json::Json;
use crate::log::Log;

/// Where documents are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum On {
    /// Those of a projection.
    Projection(Collection),
    /// Those of a collection or table that any program writes to.
    Plain(Plain),
}

impl fmt::Display for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Projection(collection) => collection.fmt(f),
            Self::Plain(plain) => write!(f, "plain {}", plain.0),
        }
    }
}

/// The name of a collection or table that is not Leftfold's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Plain(String);

impl Plain {
    /// Checks the name: letters, digits, `_`, `-` and `.`, not beginning with what is Leftfold's.
    pub fn new(name: impl Into<String>) -> Result<Self, Invalid> {
        let name = name.into();
        let fits = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.is_empty() || name.len() > 120 || !name.chars().all(fits) || name.starts_with("leftfold") {
            let expected = "1 to 120 letters, digits, _, - and ., not beginning with leftfold";
            return Err(Invalid::new("collection", &name, expected));
        }
        Ok(Self(name))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Plain {
    type Error = Invalid;

    fn try_from(name: String) -> Result<Self, Invalid> {
        Self::new(name)
    }
}

impl From<Plain> for String {
    fn from(plain: Plain) -> Self {
        plain.0
    }
}

/// What has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Documents that were written or deleted, however often.
    pub documents: BTreeMap<On, BTreeSet<DocumentId>>,
    /// Where to go on when all of this is taken care of.
    pub through: String,
}

/// What a feed of changes says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// These documents have changed; none if nothing has for a while.
    Changes(Changes),
    /// The changes since the place it began at are no longer known: everything must be compared.
    Lost(String),
}

/// Changes of documents, one after the other.
pub trait Feed: Send {
    /// The next changes, at most so many; waits for some, but no longer than this. Cancelling it loses nothing.
    fn next(&mut self, most: usize, patience: Duration) -> impl Future<Output = Result<Told>> + Send;
}

/// A task as it is to be, and what it was computed from.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// There must be none yet.
    Insert(Task),
    /// It must have this version.
    Update(u64, Task),
    /// It must have this version, and is to be gone.
    Delete(u64, TaskKey),
}

impl Change {
    /// Which task it is about.
    pub fn key(&self) -> &TaskKey {
        match self {
            Self::Insert(task) | Self::Update(_, task) => &task.key,
            Self::Delete(_, key) => key,
        }
    }
}

/// Which due tasks are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The reaction.
    pub reaction: String,
    /// The version of its code that is here: what needs a later one is not wanted.
    pub version: u32,
    /// How many.
    pub most: usize,
    /// The suspicion that they are under.
    pub suspicion: Suspicion,
}

/// Tasks that can be claimed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Due {
    /// First those that are due for longest, of each reaction.
    pub tasks: Vec<Task>,
    /// When the next one that is wanted becomes due, if none of its reaction is now; never is `None`.
    pub next: Option<Timestamp>,
    /// The store's time.
    pub now: Timestamp,
    /// The latest code of the reactions that are wanted, as far as they are registered.
    pub codes: BTreeMap<String, u32>,
    /// When the first suspect of each level is due, of the reactions of which tasks without suspicion
    /// are wanted and that are neither paused nor throttled.
    pub suspects: BTreeMap<Suspicion, Timestamp>,
}

/// What is known of a reaction by all who plan or run it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Registered {
    /// Its name.
    pub name: String,
    /// A number that is another one after each change.
    pub version: u64,
    /// Where its documents are; none if it is about events, or about time alone.
    pub on: Option<On>,
    /// What its filter and its watched values are, as far as that can be told.
    pub definition: String,
    /// The latest version of its code.
    pub code: u32,
    /// Nobody claims its tasks.
    pub paused: bool,
    /// Why, if that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_because: Option<String>,
    /// Nobody claims its tasks until then.
    pub throttled: Option<Timestamp>,
    /// All documents are being compared, and this is how far that is; `None` if they are not.
    pub comparing: Option<Comparing>,
}

/// How far a comparison of all documents is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Comparing {
    /// It has not begun.
    #[default]
    ToBegin,
    /// All documents up to this one were compared.
    Documents(DocumentId),
    /// All documents were compared, and the tasks up to this one: some may have no document any more.
    Tasks(DocumentId),
}

/// Which tasks are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Those of this reaction.
    pub reaction: Option<String>,
    /// Those of this document.
    pub document: Option<DocumentId>,
    /// Those in one of these states; in any if there are none.
    pub states: Vec<State>,
    /// Those whose last error has this text in it, in whatever case.
    pub error: Option<String>,
    /// Those that did not change their state since then.
    pub changed_before: Option<Timestamp>,
}

impl Query {
    /// Whether a task is meant.
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

/// How many tasks there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Depth {
    /// By state.
    pub states: BTreeMap<State, u64>,
    /// Since when the task waits that is due for longest.
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

/// A document that reactions are about, as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundDocument {
    /// Its id.
    pub id: DocumentId,
    /// Its body, or why that can't be read.
    pub body: Result<Body, String>,
}

impl FoundDocument {
    /// A document that can be read.
    pub fn new(id: DocumentId, body: impl Into<Body>) -> Self {
        Self { id, body: Ok(body.into()) }
    }
}

/// The body of a document: JSON for handlers, and values for filters.
#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    json: Json,
    /// The same in the store's own types, where it has more of them than JSON.
    value: Option<Value>,
}

impl Body {
    /// The body of a document in a store whose types are not all of JSON.
    pub fn typed(json: Json, value: Value) -> Self {
        Self { json, value: Some(value) }
    }

    /// It as JSON.
    pub fn json(&self) -> &Json {
        &self.json
    }

    /// It as filters and watched paths see it.
    pub fn value(&self) -> Result<Cow<'_, Value>, Invalid> {
        match &self.value {
            Some(value) => Ok(Cow::Borrowed(value)),
            None => self.json.as_str().parse().map(Cow::Owned),
        }
    }
}

impl From<Json> for Body {
    fn from(json: Json) -> Self {
        Self { json, value: None }
    }
}

/// Documents that were asked for by id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FoundDocuments {
    /// Those that are there.
    pub documents: Vec<FoundDocument>,
    /// Ids that were not looked at, because the documents before them are so large. Ask again for these.
    pub left: Vec<DocumentId>,
    bytes: usize,
}

impl FoundDocuments {
    /// Adds a document.
    pub fn push(&mut self, document: FoundDocument) {
        self.bytes += document.body.as_ref().map_or(0, |body| body.json.as_str().len());
        self.documents.push(document);
    }

    /// Whether there is a document, and all of them take this many bytes or more.
    pub fn is_full(&self, bytes: usize) -> bool {
        !self.documents.is_empty() && self.bytes >= bytes
    }
}

/// What a store does for reactions.
pub trait Reactive: Log + Clone + Send + Sync + 'static {
    /// Changes of documents.
    type Feed: Feed;

    /// Makes what is needed to follow these documents, if there are any, and to keep tasks. What is there already stays as it is.
    fn prepare_reactions(&self, on: &[On]) -> impl Future<Output = Result<()>> + Send;

    /// The store's time: that of one clock for all.
    fn time(&self) -> impl Future<Output = Result<Timestamp>> + Send;

    /// Returns documents as they are now, not earlier than this call; those that are not there are left out. It stops after about so
    /// many bytes, but not before the first document. A document that can't be read keeps no others from being returned.
    fn current_documents(
        &self,
        on: &On,
        ids: Vec<DocumentId>,
        bytes: usize,
    ) -> impl Future<Output = Result<FoundDocuments>> + Send;

    /// Returns ids of documents in their order, after an id. Some of these documents may be gone.
    fn page_of_ids(
        &self,
        on: &On,
        after: Option<DocumentId>,
        most: usize,
    ) -> impl Future<Output = Result<Vec<DocumentId>>> + Send;

    /// Changes of these documents, from a place on that a feed named, or from now on. The order of `on` does not matter.
    fn follow(&self, on: Vec<On>, from: Option<String>) -> impl Future<Output = Result<Self::Feed>> + Send;

    /// Whether any of these documents was written or deleted after a place that a feed named, up to this call; also if that can't be told any more.
    fn has_changes(&self, on: Vec<On>, after: String) -> impl Future<Output = Result<bool>> + Send {
        async move {
            let mut feed = self.follow(on, Some(after.clone())).await?;
            let mut place = after;
            loop {
                match feed.next(100, Duration::ZERO).await? {
                    Told::Changes(changes) if !changes.documents.is_empty() => return Ok(true),
                    Told::Changes(changes) if changes.through == place => return Ok(false),
                    // What it has passed were changes of other documents: these may be behind.
                    Told::Changes(changes) => place = changes.through,
                    Told::Lost(_) => return Ok(true),
                }
            }
        }
    }

    /// Tasks as they are now; those that are not there are left out.
    fn load_tasks(&self, keys: Vec<TaskKey>) -> impl Future<Output = Result<Vec<Task>>> + Send;

    /// Makes those of these changes whose tasks are what they were computed from. Answers with the others. On an error nobody knows: look
    /// at them again.
    fn save_tasks(&self, changes: Vec<Change>) -> impl Future<Output = Result<Vec<TaskKey>>> + Send;

    /// Returns tasks that can be claimed now under the wanted suspicion ([`Task::waits_under`]), of
    /// reactions that are neither paused nor throttled.
    fn due_tasks(&self, wanted: Vec<Wanted>) -> impl Future<Output = Result<Due>> + Send;

    /// Tasks of these reactions whose documents are to be looked at by now.
    fn tasks_to_check(&self, reactions: Vec<String>, most: usize)
    -> impl Future<Output = Result<Due>> + Send;

    /// Tasks, by reaction and document, after one of these. Their reactions are registered.
    fn list_tasks(
        &self,
        query: Query,
        after: Option<TaskKey>,
        most: usize,
    ) -> impl Future<Output = Result<Vec<Task>>> + Send;

    /// How many tasks there are, by reaction.
    fn task_depths(&self) -> impl Future<Output = Result<BTreeMap<String, Depth>>> + Send;

    /// All reactions that anybody has registered.
    fn registered(&self) -> impl Future<Output = Result<Vec<Registered>>> + Send;

    /// Keeps what is known of a reaction, if it has this version, or is not known where there is none. Answers whether it did.
    fn register(&self, seen: Option<u64>, reaction: Registered) -> impl Future<Output = Result<bool>> + Send;

    /// Takes a lease, or keeps it, for so long from now. Answers with its number if it is ours: another one for each owner it had, and
    /// never a smaller one.
    fn take_lease(
        &self,
        name: &str,
        owner: &str,
        length: Duration,
    ) -> impl Future<Output = Result<Option<u64>>> + Send;

    /// Gives a lease back, if it is ours.
    fn give_lease(&self, name: &str, owner: &str) -> impl Future<Output = Result<()>> + Send;

    /// Says that a worker is alive, for so long from now; with no time, that it has ended.
    fn beat(&self, worker: &str, length: Duration) -> impl Future<Output = Result<()>> + Send;

    /// Returns the workers that are alive by the store's clock.
    fn living(&self) -> impl Future<Output = Result<BTreeSet<String>>> + Send;

    /// Where a feed is to go on.
    fn feed_place(&self, name: &str) -> impl Future<Output = Result<Option<String>>> + Send;

    /// Says where a feed is to go on, if the lease of that name still has this number, and belongs to whoever has it. Answers whether it did.
    fn put_feed_place(
        &self,
        name: &str,
        lease: u64,
        place: Option<String>,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Tells all who run tasks, in whatever process, that some may be due.
    fn stir(&self) -> impl Future<Output = Result<()>> + Send;

    /// Waits until somebody did since this number was answered, or for so long. Answers with a number for the next time.
    fn stirred(&self, since: u64, patience: Duration) -> impl Future<Output = Result<u64>> + Send;
}
