//! Data flow between the store and the fold: pages of the log that are read ahead, and commits.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::sleep;

use super::Projection;
use super::folder::Folder;
use super::routed::Routed;
use super::threads;
use crate::backoff::Backoff;
use crate::budget::{Budget, Use};
use crate::documents::{Commit, CommitConflict, CommitOutcome};
use crate::error::Result;
use crate::event::Partition;
use crate::log::Limit;
use crate::mark::Mark;
use crate::store::Store;

/// Reads the log from a mark on, page by page, and decodes it, one page ahead of the receiver.
pub(crate) async fn read_ahead<S: Store, P: Projection>(
    store: S,
    folder: Arc<Folder<P>>,
    mut cursor: Mark,
    (page_bytes, budget): (usize, Budget),
    pages: mpsc::Sender<Result<Routed<P::Event>>>,
) {
    const FIRST_PAGE_BYTES: usize = 1 << 16;
    /// Events use memory even without data.
    const PAGE_EVENTS: usize = 10_000;
    let mut bytes = FIRST_PAGE_BYTES.min(page_bytes);
    loop {
        let mut found = false;
        for partition in (0..store.partitions()).map(Partition) {
            let limit = Limit { events: PAGE_EVENTS, bytes };
            let page = match store.read(partition, cursor.position(partition), limit).await {
                Ok(page) if page.events.is_empty() && page.through <= cursor.position(partition) => continue,
                Ok(page) => page,
                Err(error) => return drop(pages.send(Err(error)).await),
            };
            found = true;
            // Far behind the head, larger pages cost less; near it they are not needed.
            let is_far = page.more && budget.allowance(Use::Cache) > 0;
            bytes = if is_far { (bytes * 2).min(page_bytes) } else { FIRST_PAGE_BYTES.min(page_bytes) };
            cursor.advance(&partition.into(), page.through.0);
            let routing = folder.clone();
            let routed = match threads::run(move || routing.route(partition, page)).await {
                Ok(routed) => routed,
                Err(error) => return drop(pages.send(Err(error)).await),
            };
            if pages.send(Ok(routed)).await.is_err() {
                return;
            }
        }
        if !found && let Err(error) = store.grown(&cursor).await {
            return drop(pages.send(Err(error)).await);
        }
    }
}

/// The known outcome of a commit.
pub(crate) enum Settled {
    Applied,
    Conflict(CommitConflict),
}

/// Commits, and repeats the same commit while its outcome is unknown. That is harmless, because its
/// guards hold at most once.
///
/// If the commit was applied without an answer, the repetition is a conflict, and the work starts
/// over from the store. A checkpoint at the expected mark would be no proof of success. Another
/// worker may have moved it there, with other documents than those in memory.
pub(crate) async fn submit<S: Store>(store: S, commit: Arc<Commit>, seed: u64) -> Result<Settled> {
    let mut delays = Backoff::default().limit(8).delays(seed);
    loop {
        let doubt = match store.commit(commit.clone()).await {
            Ok(CommitOutcome::Applied) => return Ok(Settled::Applied),
            Ok(CommitOutcome::Conflict(conflict)) => return Ok(Settled::Conflict(conflict)),
            Ok(CommitOutcome::Unknown(error)) => error,
            Err(error) if error.is_transient() => error,
            Err(error) => return Err(error),
        };
        let Some(delay) = delays.next() else { return Err(doubt) };
        tracing::debug!(error = %doubt, "outcome of a commit unknown, repeating it");
        sleep(delay).await;
    }
}
