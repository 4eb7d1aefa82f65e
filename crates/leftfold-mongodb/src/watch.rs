//! The board: what the last commits reached, for those who wait for more.
//!
//! Commits of this process are put up at once. Those of other processes come through a change stream, which is open only while somebody waits, or did
//! a moment ago: on the number of stirs alone while only those wait who run tasks, which is cheaper for the server; on the heads and the checkpoints as
//! well once somebody waits for these. Where it fails, as on a standalone server, all are read again and again instead.
//!
//! **No wake-up is lost**: the stream is opened first and then all is read, so that whatever is not in what was read
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

use crate::documents::checkpoint;
use crate::error::Failure;
use crate::schema::{CHECKPOINTS, GENERATIONS, HEADS, STIRS};
use crate::{Base, patiently};

/// How long the server keeps an idle stream waiting: what an idle store costs is one command in this time.
const AWAIT: Duration = Duration::from_secs(10);
/// A server that does not even say that nothing happened is gone.
const SILENCE: Duration = Duration::from_secs(30);
/// How long the stream stays open when nobody waits any more.
const LINGER: Duration = Duration::from_secs(10);
/// How often is looked where there is no stream: often after something happened, seldom when nothing does.
const SHORTEST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(500);
/// How long after a failure the stream is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// How many of its own moves a process recognises when the change stream tells them again.
const ECHOES: usize = 64;

/// What is known to be committed. Others may have gone further.
#[derive(Debug, Default)]
pub(crate) struct Known {
    heads: Mark,
    checkpoints: HashMap<Collection, Stand>,
    partitions: u16,
    /// How often those who run tasks were stirred.
    stirs: u64,
    /// How often it was heard that other generations may be live.
    switches: u64,
    /// What is live of what, as it was last read.
    live: Vec<(String, i64)>,
    /// What comes through the change stream, every step that others take.
    told: Option<Scope>,
}

/// What somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// That those who run tasks are stirred.
    Stirs,
    /// That, and commits of events and documents.
    All,
}

/// Where a checkpoint is.
#[derive(Debug, Default)]
struct Stand {
    mark: Mark,
    /// How often it was seen to change.
    changes: u64,
    /// How often this process has put it up.
    published: u64,
    /// What this process has put up and the change stream has not yet told again.
    echoes: VecDeque<Mark>,
}

impl Known {
    /// Whether some partition's head is beyond the mark.
    pub(crate) fn is_beyond(&self, mark: &Mark) -> bool {
        let is_beyond = |partition| self.heads.position(partition) > mark.position(partition);
        (0..self.partitions).map(Partition).any(is_beyond)
    }

    /// How often those who run tasks were stirred, at least.
    pub(crate) fn stirs(&self) -> u64 {
        self.stirs
    }

    /// How often it was heard that other generations may be live.
    pub(crate) fn switches(&self) -> u64 {
        self.switches
    }

    /// Whether whatever is not here yet will come by itself.
    pub(crate) fn is_told(&self, scope: Scope) -> bool {
        self.told >= Some(scope)
    }

    /// Where a checkpoint is known to be, and how often it was seen to change.
    pub(crate) fn checkpoint(&self, projection: &Collection) -> (Mark, u64) {
        self.checkpoints
            .get(projection)
            .map_or_else(Default::default, |stand| (stand.mark.clone(), stand.changes))
    }
}

pub(crate) struct Board {
    known: watch::Sender<Known>,
    waiting: Mutex<Waiting>,
    /// Somebody came.
    bell: Notify,
}

#[derive(Default)]
struct Waiting {
    for_stirs: usize,
    for_all: usize,
    /// The task that looks for commits of others.
    watcher: Option<AbortHandle>,
}

impl Board {
    pub(crate) fn new(partitions: u16) -> Self {
        let known = Known { partitions, ..Known::default() };
        Self { known: watch::Sender::new(known), waiting: Mutex::default(), bell: Notify::new() }
    }

    /// Puts up where heads are, at least. Answers whether that is news.
    pub(crate) fn grew(&self, heads: &Mark) -> bool {
        self.known.send_if_modified(|known| {
            let news = !known.heads.covers(heads);
            known.heads.merge(heads);
            news
        })
    }

    /// Puts up how often those who run tasks were stirred, at least. Answers whether that is news.
    pub(crate) fn stirred(&self, stirs: u64) -> bool {
        self.known.send_if_modified(|known| {
            let news = known.stirs < stirs;
            known.stirs = known.stirs.max(stirs);
            news
        })
    }

    /// Puts up that other generations may be live.
    pub(crate) fn switched(&self) {
        self.known.send_modify(|known| known.switches += 1);
    }

    /// Puts up what was read to be live. Answers whether that is news.
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

    /// Puts up where this process has moved a checkpoint.
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

    /// Puts up where the change stream says that a checkpoint was moved, by whomever.
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

    /// How often this process has put up each checkpoint.
    fn published(&self) -> HashMap<Collection, u64> {
        let known = self.known.borrow();
        known.checkpoints.iter().map(|(projection, stand)| (projection.clone(), stand.published)).collect()
    }

    /// Puts up where checkpoints were read to be, but for those that this process has moved meanwhile. Answers whether
    /// there is news.
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

    /// Of what every step that others take will be put up.
    fn is_told(&self, told: Option<Scope>) {
        self.known.send_if_modified(|known| {
            known.told = told;
            false
        });
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is waited for, if anything is.
    fn awaited(&self) -> Option<Scope> {
        let waiting = self.lock();
        match (waiting.for_stirs, waiting.for_all) {
            (0, 0) => None,
            (_, 0) => Some(Scope::Stirs),
            _ => Some(Scope::All),
        }
    }

    /// Waits until more is waited for than this.
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

/// Somebody waits.
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
    /// Starts to wait. Until the guard is dropped, what other processes do is looked for.
    pub(crate) fn wait(self: &Arc<Self>, scope: Scope) -> (Guard, watch::Receiver<Known>) {
        let mut waiting = self.board.lock();
        *waiting.waiters(scope) += 1;
        // It may have ended with the runtime it was started in.
        if waiting.watcher.as_ref().is_none_or(AbortHandle::is_finished) {
            let watcher = tokio::spawn(watch(Arc::downgrade(self), Arc::clone(&self.board)));
            waiting.watcher = Some(watcher.abort_handle());
        }
        drop(waiting);
        self.board.bell.notify_one();
        (Guard { board: Arc::clone(&self.board), scope }, self.board.known.subscribe())
    }

    /// Reads all heads, checkpoints and stirs, and puts them up. Answers whether there is news.
    async fn look(&self) -> Result<bool, Failure> {
        let mut news = false;
        if self.has_transactions() {
            news |= self.board.grew(&self.heads().await?);
            news |= self.board.stirred(self.stirs().await?);
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

    /// A stream of all changes from now on.
    async fn changes(&self, scope: Scope) -> Result<ChangeStream<Document>, Failure> {
        let told = doc! { "$project": {
            "documentKey": 1,
            "position": { "$ifNull": ["$updateDescription.updatedFields.position", "$fullDocument.position"] },
            "mark": { "$ifNull": ["$updateDescription.updatedFields.mark", "$fullDocument.mark"] },
            "live": { "$ifNull": ["$updateDescription.updatedFields.live", "$fullDocument.live"] },
            "stirs": { "$ifNull": ["$updateDescription.updatedFields.stirs", "$fullDocument.stirs"] },
        } };
        let stirs = self.db.collection::<Document>(STIRS);
        let changes = match scope {
            Scope::Stirs => stirs.watch().pipeline([told]),
            Scope::All => {
                let ours =
                    doc! { "$match": { "ns.coll": { "$in": [HEADS, CHECKPOINTS, STIRS, GENERATIONS] } } };
                self.db.watch().pipeline([ours, told])
            }
        };
        Ok(changes.max_await_time(AWAIT).await?.with_type())
    }

    /// Puts up what a change tells.
    fn see(&self, change: &Document) {
        if let Ok(stirs) = change.get_i64("stirs") {
            self.board.stirred(stirs.unsigned_abs());
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

/// Looks for commits of others while somebody waits, until the store is gone.
async fn watch(store: Weak<Base>, board: Arc<Board>) {
    let mut failed_at: Option<Instant> = None;
    loop {
        let scope = loop {
            if let Some(scope) = board.awaited() {
                break scope;
            }
            // Woken now and then to see whether the store is gone.
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
            // Those who wait are still woken by this process; the next look tries again.
            tracing::warn!(?failure, "could not watch for commits of others; looking for them instead");
            failed_at = Some(Instant::now());
            sleep(SHORTEST).await;
        }
    }
}

/// Follows a change stream until it fails, or nobody waits any more, or somebody waits for more.
async fn follow(base: Arc<Base>, scope: Scope) -> Result<(), Failure> {
    // What was put up before the stream is open it will never tell.
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
        // What is watched was dropped; another stream tells what comes in its place.
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

/// Looks again and again for as long as a stream is not to be tried, or until nobody waits any more.
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
        sleep((stirred.elapsed() / 8).clamp(SHORTEST, LONGEST)).await;
    }
    Ok(())
}
