//! Commits of other processes, by a change stream.
//!
//! While only runners wait, the stream covers just the wake-up counter, which is cheaper for the
//! server. Otherwise it also covers the heads and the checkpoints. Where a change stream fails, as
//! on a standalone server, the watcher polls instead.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bson::{Document, RawDocumentBuf, doc};
use leftfold::{Collection, Lane, Partition};
use mongodb::change_stream::ChangeStream;
use tokio::time::{Instant, sleep, timeout};

use super::board::Board;
use super::known::Scope;
use crate::connection::{Base, with_timeout};
use crate::documents::decode_checkpoint;
use crate::error::Failure;
use crate::schema::{CHECKPOINTS, GENERATIONS, HEADS, WAKES};

/// The longest time that the server keeps an idle stream waiting. An idle store costs one command
/// per interval.
const AWAIT: Duration = Duration::from_secs(10);
/// The time after which a server that does not even report an empty result counts as gone.
const SILENCE: Duration = Duration::from_secs(30);
/// The time that the stream stays open after the last wait.
const LINGER: Duration = Duration::from_secs(10);
/// The polling intervals: short after a change, long when nothing happens.
const MIN_WAIT: Duration = Duration::from_millis(5);
const MAX_WAIT: Duration = Duration::from_millis(500);
/// The delay before the stream is tried again after a failure.
const RETRY: Duration = Duration::from_secs(5);

impl Base {
    /// Reads all heads, checkpoints, wake-ups and generations, and publishes them. Returns whether
    /// there is news.
    async fn look(&self) -> Result<bool, Failure> {
        let mut news = false;
        if self.has_transactions() {
            news |= self.board.grew(&self.heads().await?);
            news |= self.board.is_woken(self.wakes().await?);
        }
        let published = self.board.published();
        let mut checkpoints = Vec::new();
        let mut found = self.db.collection::<RawDocumentBuf>(CHECKPOINTS).find(doc! {}).await?;
        while found.advance().await? {
            let stored = found.current();
            if let Ok(projection) = Collection::from_stored(stored.get_str("_id")?) {
                checkpoints.push((projection, decode_checkpoint(stored)?.mark));
            }
        }
        let mut live = Vec::new();
        let mut found = self.db.collection::<RawDocumentBuf>(GENERATIONS).find(doc! {}).await?;
        while found.advance().await? {
            let stored = found.current();
            live.push((stored.get_str("_id")?.to_owned(), stored.get_i64("live")?));
        }
        live.sort();
        news |= self.board.found_live(live);
        Ok(self.board.found_checkpoints(checkpoints, &published) || news)
    }

    /// Opens a stream of all changes from now on.
    async fn changes(&self, scope: Scope) -> Result<ChangeStream<Document>, Failure> {
        let fields = doc! { "$project": {
            "documentKey": 1,
            "position": { "$ifNull": ["$updateDescription.updatedFields.position", "$fullDocument.position"] },
            "mark": { "$ifNull": ["$updateDescription.updatedFields.mark", "$fullDocument.mark"] },
            "live": { "$ifNull": ["$updateDescription.updatedFields.live", "$fullDocument.live"] },
            "wakes": { "$ifNull": ["$updateDescription.updatedFields.wakes", "$fullDocument.wakes"] },
        } };
        let wakes = self.db.collection::<Document>(WAKES);
        let changes = match scope {
            Scope::Wakes => wakes.watch().pipeline([fields]),
            Scope::All => {
                let ours =
                    doc! { "$match": { "ns.coll": { "$in": [HEADS, CHECKPOINTS, WAKES, GENERATIONS] } } };
                self.db.watch().pipeline([ours, fields])
            }
        };
        Ok(changes.max_await_time(AWAIT).await?.with_type())
    }

    /// Publishes a change.
    fn see(&self, change: &Document) {
        if let Ok(wakes) = change.get_i64("wakes") {
            self.board.is_woken(wakes.unsigned_abs());
        }
        if change.get_i64("live").is_ok() {
            self.board.switched();
        }
        let Ok(key) = change.get_document("documentKey") else { return };
        if let (Ok(key), Ok(position)) = (key.get_i32("_id"), change.get_i64("position"))
            && let Ok(partition) = u16::try_from(key)
        {
            let head = [(Lane::from(Partition(partition)), position.unsigned_abs())];
            self.board.grew(&head.into_iter().collect());
        }
        if let (Ok(key), Ok(mark)) = (key.get_str("_id"), change.get_str("mark"))
            && let (Ok(projection), Ok(mark)) = (Collection::from_stored(key), serde_json::from_str(mark))
        {
            self.board.moved_elsewhere(&projection, &mark);
        }
    }
}

/// Watches for commits of other processes while a task waits, until the store is dropped.
pub(super) async fn watch_others(store: Weak<Base>, board: Arc<Board>) {
    let mut failed_at: Option<Instant> = None;
    loop {
        let scope = loop {
            if let Some(scope) = board.awaited() {
                break scope;
            }
            // The timeout lets the loop notice that the store was dropped.
            let _ = timeout(LINGER, board.bell.notified()).await;
            if store.strong_count() == 0 {
                return;
            }
        };
        let Some(base) = store.upgrade() else { return };
        let streams = base.has_transactions() && failed_at.is_none_or(|at| at.elapsed() > RETRY);
        let watched = if streams { follow(base, scope).await } else { poll(base).await };
        board.set_streamed(None);
        if let Err(failure) = watched {
            // Commits of this process still wake the waiting tasks; the next round tries again.
            tracing::warn!(?failure, "could not watch for commits of other processes; polling instead");
            failed_at = Some(Instant::now());
            sleep(MIN_WAIT).await;
        }
    }
}

/// Follows a change stream until it fails, no task waits any more, or a task waits for a wider
/// scope.
async fn follow(base: Arc<Base>, scope: Scope) -> Result<(), Failure> {
    // The stream does not report moves published before it opened.
    base.board.known.send_if_modified(|known| {
        known.checkpoints.values_mut().for_each(|checkpoint| checkpoint.echoes.clear());
        false
    });
    let mut changes = with_timeout(base.changes(scope)).await?;
    with_timeout(base.look()).await?;
    base.board.set_streamed(Some(scope));
    let (board, store) = (Arc::clone(&base.board), Arc::downgrade(&base));
    drop(base);
    let mut idle_since = None;
    loop {
        let next = tokio::select! {
            next = timeout(SILENCE, changes.next_if_any()) => next,
            () = board.wanted_beyond(scope) => return Ok(()),
        };
        let Ok(next) = next else { return Err(Failure::silent()) };
        let Some(base) = store.upgrade() else { return Ok(()) };
        next?.iter().for_each(|change| base.see(change));
        // A watched collection was dropped: open another stream for its replacement.
        if !changes.is_alive() {
            return Ok(());
        }
        if board.awaited().is_some() {
            idle_since = None;
        } else if idle_since.get_or_insert_with(Instant::now).elapsed() > LINGER {
            return Ok(());
        }
    }
}

/// Polls until it is time to try the stream again, or until no task waits any more.
async fn poll(base: Arc<Base>) -> Result<(), Failure> {
    let (board, store) = (Arc::clone(&base.board), Arc::downgrade(&base));
    drop(base);
    let begun = Instant::now();
    let mut changed = begun;
    while board.awaited().is_some() && begun.elapsed() < RETRY {
        let Some(base) = store.upgrade() else { return Ok(()) };
        if with_timeout(base.look()).await? {
            changed = Instant::now();
        }
        drop(base);
        sleep((changed.elapsed() / 8).clamp(MIN_WAIT, MAX_WAIT)).await;
    }
    Ok(())
}
