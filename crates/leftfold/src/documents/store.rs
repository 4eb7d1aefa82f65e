//! The store interface of documents.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::{Checkpoint, Claim, Collection, Commit, CommitOutcome, DocumentCounts, Generations, Record};
use crate::error::Result;
use crate::event::DocumentId;
use crate::mark::Mark;

/// A store of documents and of the checkpoints of their projections.
///
/// A plain collection name means the [live](Generations::live) generation at the time of the call.
/// A [generation](Collection::generation) means that generation, whichever is live.
/// [`Collection::stored`] resolves a name to the stored records.
pub trait Documents: Send + Sync + 'static {
    /// Creates the collection or generation, and its [hidden one](Collection::streams), if they do
    /// not exist yet.
    fn prepare(&self, collection: &Collection) -> impl Future<Output = Result<()>> + Send;

    /// Returns the records with these ids, in any order. Ids without a record are left out.
    ///
    /// The answer may be slightly stale: that costs a retry, never a wrong document.
    fn load(
        &self,
        collection: &Collection,
        ids: Vec<DocumentId>,
    ) -> impl Future<Output = Result<Vec<Record>>> + Send;

    /// Returns the current records with these ids. A store whose [`load`](Self::load) can be stale
    /// must override this.
    fn load_current(
        &self,
        collection: &Collection,
        ids: Vec<DocumentId>,
    ) -> impl Future<Output = Result<Vec<Record>>> + Send {
        self.load(collection, ids)
    }

    /// Commits writes, each guarded by the header it was computed from. `Err` means that nothing
    /// was written.
    fn commit(&self, commit: Arc<Commit>) -> impl Future<Output = Result<CommitOutcome>> + Send;

    /// Returns the documents that readers see, ordered by id, after an id.
    fn scan(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Record>>> + Send;

    /// Does the same, but also limits the bytes of all bodies. A page has at least one document if
    /// there is one. The second value says whether there may be more.
    ///
    /// Stores override this to stop reading when the page is full. The default reads one document
    /// at a time.
    fn scan_page(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
        bytes: usize,
    ) -> impl Future<Output = Result<(Vec<Record>, bool)>> + Send {
        async move {
            let (mut page, mut after) = (Vec::new(), after);
            let mut left = bytes;
            while page.len() < limit {
                let Some(record) = self.scan(collection, after, 1).await?.pop() else {
                    return Ok((page, false));
                };
                if !record.fits(page.is_empty(), &mut left) {
                    break;
                }
                after = Some(record.id.clone());
                page.push(record);
            }
            Ok((page, true))
        }
    }

    /// Returns the parked records, ordered by id, after an id.
    fn parked(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Record>>> + Send;

    /// Counts the documents.
    fn count(&self, collection: &Collection) -> impl Future<Output = Result<DocumentCounts>> + Send;

    /// Returns the checkpoint of a projection, which is at the beginning if it never ran.
    fn checkpoint(&self, projection: &Collection) -> impl Future<Output = Result<Checkpoint>> + Send;

    /// Waits until the checkpoint's mark differs from this one, and returns it. An idle wait costs
    /// close to nothing.
    fn advanced(&self, projection: &Collection, from: &Mark) -> impl Future<Output = Result<Mark>> + Send;

    /// Claims or renews the lease on a projection. Returns [`Claim::Theirs`] while another owner's
    /// lease has not ended, by the store's clock.
    fn claim(
        &self,
        projection: &Collection,
        owner: &str,
        lease: Duration,
    ) -> impl Future<Output = Result<Claim>> + Send;

    /// Returns the [generations](Generations) of a collection. If none are recorded, that is the
    /// first one alone.
    fn generations(&self, collection: &Collection) -> impl Future<Output = Result<Generations>> + Send;

    /// Stores the generations of a collection if the stored revision is still `seen`, and returns
    /// whether it did. After an error the outcome is unknown, so read again.
    ///
    /// A change of the live generation takes effect at once for every caller that names the
    /// collection alone. A reader sees either the old generation or the new one. Change feeds
    /// report that [changes are lost](crate::react::FeedItem::Lost), so that all documents are
    /// compared.
    fn put_generations(
        &self,
        collection: &Collection,
        seen: u64,
        next: Generations,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Deletes a [generation](Collection::generation) that is not live: its records, its hidden
    /// collection and its checkpoint. Missing parts are not an error.
    fn drop_generation(&self, generation: &Collection) -> impl Future<Output = Result<()>> + Send;

    /// Releases the lease if this owner holds it.
    fn release(&self, projection: &Collection, owner: &str) -> impl Future<Output = Result<()>> + Send;
}
