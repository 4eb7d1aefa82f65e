//! Reading the log ahead of the fold.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::super::folder::Folder;
use super::super::routed::Routed;
use super::super::threads;
use crate::budget::{Budget, Use};
use crate::error::Result;
use crate::event::Partition;
use crate::fold::Projection;
use crate::log::Limit;
use crate::mark::Mark;
use crate::store::Store;

/// Reads the log from a mark on, page by page, and decodes it, one page ahead of the receiver.
pub(super) async fn read_ahead<S: Store, P: Projection>(
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
