//! The board: the latest known commits, for tasks that wait for newer ones.
//!
//! Commits of this process are published at once. Commits of other processes arrive through a
//! change stream. It is open only while a task waits, and for a moment after. While only runners
//! wait, it covers just the wake-up counter, which is cheaper for the server. Otherwise it also
//! covers the heads and the checkpoints. Where a change stream fails, as on a standalone server,
//! the watcher polls instead.
//!
//! **No wake-up is lost**: the watcher opens the stream before it reads. Whatever the read misses
//! comes through the stream.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bson::{Document, RawDocumentBuf, doc};
use leftfold::{Collection, Lane, Mark, Partition};
use mongodb::change_stream::ChangeStream;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::connection::{Base, patiently};
use crate::documents::checkpoint;
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
const SHORTEST: Duration = Duration::from_millis(5);
const MAX_WAIT: Duration = Duration::from_millis(500);
/// The delay before the stream is tried again after a failure.
const RETRY: Duration = Duration::from_secs(5);

/// The number of its own moves that a process recognizes in the change stream.
const ECHOES: usize = 64;

/// The known commits. Other processes may be further.
#[derive(Debug, Default)]
pub(crate) struct Known {
    heads: Mark,
    checkpoints: HashMap<Collection, Stand>,
    partitions: u16,
    /// The number of wake-ups of runners.
    stirs: u64,
    /// The number of times that the live generations may have changed.
    switches: u64,
    /// The live generation of each collection, as last read.
    live: Vec<(String, i64)>,
    /// The scope that the change stream covers: it reports every step of other processes there.
    told: Option<Scope>,
}

/// The subject of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// Wake-ups of runners.
    Stirs,
    /// Wake-ups, and commits of events and documents.
    All,
}

/// The known state of a checkpoint.
#[derive(Debug, Default)]
struct Stand {
    mark: Mark,
    /// The number of observed changes.
    changes: u64,
    /// The number of times that this process has published it.
    published: u64,
    /// The marks that this process has published and the change stream has not reported yet.
    echoes: VecDeque<Mark>,
}

impl Known {
    /// Returns whether some partition's head is beyond the mark.
    pub(crate) fn is_beyond(&self, mark: &Mark) -> bool {
        let is_beyond = |partition| self.heads.position(partition) > mark.position(partition);
        (0..self.partitions).map(Partition).any(is_beyond)
    }

    /// Returns the number of wake-ups of runners, at least.
    pub(crate) fn stirs(&self) -> u64 {
        self.stirs
    }

    /// Returns the number of times that the live generations may have changed.
    pub(crate) fn switches(&self) -> u64 {
        self.switches
    }

    /// Returns whether the change stream covers the scope, so that every further step arrives by
    /// itself.
    pub(crate) fn is_told(&self, scope: Scope) -> bool {
        self.told >= Some(scope)
    }

    /// Returns the known mark of a checkpoint, and the number of its observed changes.
    pub(crate) fn checkpoint(&self, projection: &Collection) -> (Mark, u64) {
        self.checkpoints
            .get(projection)
            .map_or_else(Default::default, |stand| (stand.mark.clone(), stand.changes))
    }
}

pub(crate) struct Board {
    known: watch::Sender<Known>,
    waiting: Mutex<Waiting>,
    /// Rings when a task starts to wait.
    bell: Notify,
}

#[derive(Default)]
struct Waiting {
    for_stirs: usize,
    for_all: usize,
    /// The task that watches for commits of other processes.
    watcher: Option<AbortHandle>,
}

impl Board {
    pub(crate) fn new(partitions: u16) -> Self {
        let known = Known { partitions, ..Known::default() };
        Self { known: watch::Sender::new(known), waiting: Mutex::default(), bell: Notify::new() }
    }

    /// Publishes a lower bound of the heads. Returns whether it is news.
    pub(crate) fn grew(&self, heads: &Mark) -> bool {
        self.known.send_if_modified(|known| {
            let news = !known.heads.covers(heads);
            known.heads.merge(heads);
            news
        })
    }

    /// Publishes a lower bound of the number of wake-ups. Returns whether it is news.
    pub(crate) fn is_woken(&self, stirs: u64) -> bool {
        self.known.send_if_modified(|known| {
            let news = known.stirs < stirs;
            known.stirs = known.stirs.max(stirs);
            news
        })
    }

    /// Publishes that the live generations may have changed.
    pub(crate) fn switched(&self) {
        self.known.send_modify(|known| known.switches += 1);
    }

    /// Publishes the live generations that were read. Returns whether they are news.
    fn lives(&self, live: Vec<(String, i64)>) -> bool {
        self.known.send_if_modified(|known| {
            let news = known.live != live;
            if news {
                known.live = live;
                known.switches += 1;
            }
            news
        })
    }

    /// Publishes a checkpoint that this process has moved.
    pub(crate) fn moved(&self, projection: &Collection, mark: &Mark) {
        self.known.send_modify(|known| {
            let stand = known.checkpoints.entry(projection.clone()).or_default();
            stand.mark = mark.clone();
            stand.published += 1;
            stand.changes += 1;
            stand.echoes.push_back(mark.clone());
            if stand.echoes.len() > ECHOES {
                stand.echoes.pop_front();
            }
        });
    }

    /// Publishes a checkpoint move from the change stream, unless this process made it.
    fn told(&self, projection: &Collection, mark: &Mark) {
        self.known.send_if_modified(|known| {
            let stand = known.checkpoints.entry(projection.clone()).or_default();
            if let Some(at) = stand.echoes.iter().position(|echo| echo == mark) {
                stand.echoes.drain(..=at);
                return false;
            }
            stand.mark = mark.clone();
            stand.changes += 1;
            true
        });
    }

    /// Returns the number of times that this process has published each checkpoint.
    fn published(&self) -> HashMap<Collection, u64> {
        let known = self.known.borrow();
        known.checkpoints.iter().map(|(projection, stand)| (projection.clone(), stand.published)).collect()
    }

    /// Publishes checkpoints that were read, except those that this process has moved meanwhile.
    /// Returns whether there is news.
    fn found(&self, checkpoints: Vec<(Collection, Mark)>, published: &HashMap<Collection, u64>) -> bool {
        self.known.send_if_modified(|known| {
            let mut news = false;
            for (projection, mark) in checkpoints {
                let before = published.get(&projection).copied().unwrap_or(0);
                let stand = known.checkpoints.entry(projection).or_default();
                if stand.published == before && stand.mark != mark {
                    stand.mark = mark;
                    stand.changes += 1;
                    news = true;
                }
            }
            news
        })
    }

    /// Sets the scope that the change stream covers.
    fn is_told(&self, told: Option<Scope>) {
        self.known.send_if_modified(|known| {
            known.told = told;
            false
        });
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the widest scope that tasks wait for, if any.
    fn awaited(&self) -> Option<Scope> {
        let waiting = self.lock();
        match (waiting.for_stirs, waiting.for_all) {
            (0, 0) => None,
            (_, 0) => Some(Scope::Stirs),
            _ => Some(Scope::All),
        }
    }

    /// Waits until a task waits for a wider scope.
    async fn wanted_beyond(&self, scope: Scope) {
        while self.awaited() <= Some(scope) {
            self.bell.notified().await;
        }
    }
}

impl Waiting {
    fn waiters(&mut self, scope: Scope) -> &mut usize {
        match scope {
            Scope::Stirs => &mut self.for_stirs,
            Scope::All => &mut self.for_all,
        }
    }
}

/// The registration of a waiting task. Dropping it ends the wait.
pub(crate) struct Guard {
    board: Arc<Board>,
    scope: Scope,
}

impl Drop for Guard {
    fn drop(&mut self) {
        *self.board.lock().waiters(self.scope) -= 1;
    }
}

impl Base {
    /// Starts a wait. Until the guard is dropped, the watcher follows other processes.
    pub(crate) fn wait(self: &Arc<Self>, scope: Scope) -> (Guard, watch::Receiver<Known>) {
        let mut waiting = self.board.lock();
        *waiting.waiters(scope) += 1;
        // The watcher may have ended with the runtime that started it.
        if waiting.watcher.as_ref().is_none_or(AbortHandle::is_finished) {
            let watcher = tokio::spawn(watch(Arc::downgrade(self), Arc::clone(&self.board)));
            waiting.watcher = Some(watcher.abort_handle());
        }
        drop(waiting);
        self.board.bell.notify_one();
        (Guard { board: Arc::clone(&self.board), scope }, self.board.known.subscribe())
    }

    /// Reads all heads, checkpoints, wake-ups and generations, and publishes them. Returns whether
    /// there is news.
    async fn look(&self) -> Result<bool, Failure> {
        let mut news = false;
        if self.has_transactions() {
            news |= self.board.grew(&self.heads().await?);
            news |= self.board.is_woken(self.stirs().await?);
        }
        let published = self.board.published();
        let mut checkpoints = Vec::new();
        let mut found = self.db.collection::<RawDocumentBuf>(CHECKPOINTS).find(doc! {}).await?;
        while found.advance().await? {
            let stored = found.current();
            if let Ok(projection) = Collection::from_stored(stored.get_str("_id")?) {
                checkpoints.push((projection, checkpoint(stored)?.mark));
            }
        }
        let mut live = Vec::new();
        let mut found = self.db.collection::<RawDocumentBuf>(GENERATIONS).find(doc! {}).await?;
        while found.advance().await? {
            let stored = found.current();
            live.push((stored.get_str("_id")?.to_owned(), stored.get_i64("live")?));
        }
        live.sort();
        news |= self.board.lives(live);
        Ok(self.board.found(checkpoints, &published) || news)
    }

    /// Opens a stream of all changes from now on.
    async fn changes(&self, scope: Scope) -> Result<ChangeStream<Document>, Failure> {
        let told = doc! { "$project": {
            "documentKey": 1,
            "position": { "$ifNull": ["$updateDescription.updatedFields.position", "$fullDocument.position"] },
            "mark": { "$ifNull": ["$updateDescription.updatedFields.mark", "$fullDocument.mark"] },
            "live": { "$ifNull": ["$updateDescription.updatedFields.live", "$fullDocument.live"] },
            "stirs": { "$ifNull": ["$updateDescription.updatedFields.stirs", "$fullDocument.stirs"] },
        } };
        let stirs = self.db.collection::<Document>(WAKES);
        let changes = match scope {
            Scope::Stirs => stirs.watch().pipeline([told]),
            Scope::All => {
                let ours =
                    doc! { "$match": { "ns.coll": { "$in": [HEADS, CHECKPOINTS, WAKES, GENERATIONS] } } };
                self.db.watch().pipeline([ours, told])
            }
        };
        Ok(changes.max_await_time(AWAIT).await?.with_type())
    }

    /// Publishes a change.
    fn see(&self, change: &Document) {
        if let Ok(stirs) = change.get_i64("stirs") {
            self.board.is_woken(stirs.unsigned_abs());
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
            self.board.told(&projection, &mark);
        }
    }
}

/// Watches for commits of other processes while a task waits, until the store is dropped.
async fn watch(store: Weak<Base>, board: Arc<Board>) {
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
        board.is_told(None);
        if let Err(failure) = watched {
            // Commits of this process still wake the waiting tasks; the next round tries again.
            tracing::warn!(?failure, "could not watch for commits of others; looking for them instead");
            failed_at = Some(Instant::now());
            sleep(SHORTEST).await;
        }
    }
}

/// Follows a change stream until it fails, no task waits any more, or a task waits for a wider
/// scope.
async fn follow(base: Arc<Base>, scope: Scope) -> Result<(), Failure> {
    // The stream does not report moves published before it opened.
    base.board.known.send_if_modified(|known| {
        known.checkpoints.values_mut().for_each(|stand| stand.echoes.clear());
        false
    });
    let mut changes = patiently(base.changes(scope)).await?;
    patiently(base.look()).await?;
    base.board.is_told(Some(scope));
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
    let mut stirred = begun;
    while board.awaited().is_some() && begun.elapsed() < RETRY {
        let Some(base) = store.upgrade() else { return Ok(()) };
        if patiently(base.look()).await? {
            stirred = Instant::now();
        }
        drop(base);
        sleep((stirred.elapsed() / 8).clamp(SHORTEST, MAX_WAIT)).await;
    }
    Ok(())
}
