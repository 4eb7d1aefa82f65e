//! The trait of stores that support reactions: a store reports changed documents, reads them, and
//! keeps tasks.
//!
//! Stores decide nothing. Decisions are made elsewhere, over plain values. A store writes a task
//! only if it still has the version from which the change was computed.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

use jiff::Timestamp;

use super::documents::{DocumentSource, FoundDocuments};
use super::feed::{DocumentFeed, FeedItem};
use super::registry::Registered;
use super::tasks::{Depth, DueTasks, Query, TaskChange, WantedTasks};
use crate::error::Result;
use crate::event::DocumentId;
use crate::log::Log;
use crate::react::task::{Task, TaskKey};

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
    /// keys of the changes that it did not apply. After an error the outcome is unknown: read the
    /// tasks again.
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
