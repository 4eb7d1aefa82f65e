//! A store that fails as real stores do, when the dice say so. Without faults it is the in-memory
//! store.

mod contents;
mod sabotage;
mod sequence;
mod tasks;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use leftfold::documents::{
    Checkpoint, Claim, CollectionWrites, Commit, CommitConflict, CommitOutcome, DocumentCounts,
    DocumentWrite, Generations, Parked, Record,
};
use leftfold::log::{AppendError, Appended, Entry, Limit, LogPage};
use leftfold::planted::{Bug, planted};
use leftfold::sequence::StreamState;
use leftfold::{
    Append, Collection, DocumentId, Documents, Error, Event, Expected, Kind, Log, Mark, Memory, Partition,
    Position, Result, Revision, StreamId,
};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::checker::Checker;
use crate::contents::ledger::Ledger as ContentLedger;
use crate::faults::{Fault, Faults};
use crate::feed::SimulatedFeed;
use crate::fuse::Fuse;
use crate::reactions::ledger::Ledger;
use crate::trace::Trace;

/// The longest delay of a write.
pub const LATE: Duration = Duration::from_secs(15);
/// The start of the simulated time.
pub(crate) const MIDNIGHT: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// The state that all handles of one simulated store share.
pub struct Shared {
    pub(crate) inner: Memory,
    /// `true` if a commit is one transaction.
    atomic: bool,
    /// The faults.
    pub faults: Faults,
    /// The trace.
    pub trace: Trace,
    /// The checker, which sees every write.
    pub checker: Checker,
    past: Mutex<HashMap<(Collection, DocumentId), Option<Record>>>,
    pub(crate) standings: Mutex<HashMap<StreamId, StreamState>>,
    /// The feed of deliveries.
    pub(crate) feed: SimulatedFeed,
    pub(crate) holders: Mutex<HashMap<Collection, Arc<str>>>,
    /// The ledger of reactions, which sees every task and its effects.
    pub(crate) ledger: Ledger,
    pub(crate) lease_holders: Mutex<BTreeMap<String, String>>,
    /// The ledger of documents without events.
    pub(crate) contents: ContentLedger,
    down: AtomicBool,
}

/// A worker's handle to the simulated store.
#[derive(Clone)]
pub struct SimStore {
    pub(crate) shared: Arc<Shared>,
    pub(crate) name: Arc<str>,
    gate: Arc<Gate>,
    fuse: Arc<Fuse>,
}

/// A gate that pauses its worker while it is closed.
#[derive(Default)]
pub struct Gate {
    closed: AtomicBool,
    opened: Notify,
}

impl Gate {
    /// Pauses the worker at its next request or response.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Lets the worker continue.
    pub fn open(&self) {
        self.closed.store(false, Ordering::Relaxed);
        self.opened.notify_waiters();
    }

    async fn pass(&self) {
        while self.closed.load(Ordering::Relaxed) {
            self.opened.notified().await;
        }
    }
}

impl SimStore {
    /// Creates an empty store, with or without transactions.
    pub fn new(partitions: u16, atomic: bool, faults: Faults, trace: bool) -> Self {
        let shared = Shared {
            inner: Memory::new(partitions).with_time(MIDNIGHT),
            atomic,
            faults,
            trace: Trace::new(trace),
            checker: Checker::default(),
            past: Mutex::default(),
            standings: Mutex::default(),
            feed: SimulatedFeed::default(),
            holders: Mutex::default(),
            ledger: Ledger::default(),
            lease_holders: Mutex::default(),
            contents: ContentLedger::default(),
            down: AtomicBool::new(false),
        };
        shared.trace.note(|| {
            format!("{partitions} partitions, {}", if atomic { "transactions" } else { "no transactions" })
        });
        let (gate, fuse) = (Arc::default(), Arc::default());
        Self { shared: Arc::new(shared), name: "outside".into(), gate, fuse }
    }

    /// Returns a handle for a worker, with its own gate and fuse.
    #[must_use]
    pub fn worker(&self, name: &str) -> Self {
        let (gate, fuse) = (Arc::default(), Arc::default());
        Self { shared: Arc::clone(&self.shared), name: name.into(), gate, fuse }
    }

    /// Returns the gate that pauses the worker.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Returns the fuse that ends the worker.
    pub fn fuse(&self) -> &Fuse {
        &self.fuse
    }

    pub(crate) fn fuse_of(&self) -> Arc<Fuse> {
        Arc::clone(&self.fuse)
    }

    /// Returns the state that all handles share.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns the inner store, which has no faults.
    pub fn inner(&self) -> &Memory {
        &self.shared.inner
    }

    pub(crate) fn strikes(&self, fault: Fault) -> bool {
        let strikes = self.shared.faults.strikes(fault);
        if strikes {
            self.shared.trace.note(|| format!("{}: {fault:?}", self.name));
        }
        strikes
    }

    pub(crate) async fn takes(&self, most: Duration) {
        sleep(self.shared.faults.dice().time(most)).await;
    }

    /// Wraps every operation: it takes time, and may fail before it does anything.
    pub(crate) async fn answer<T, E: From<Error>>(
        &self,
        what: &str,
        operation: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let operation = async {
            self.gate.pass().await;
            self.enter(what).await?;
            let answer = operation.await;
            self.gate.pass().await;
            answer
        };
        self.fuse.run(operation).await
    }

    async fn enter(&self, what: &str) -> Result<()> {
        let faults = &self.shared.faults;
        self.takes(Duration::from_millis(2)).await;
        if self.strikes(Fault::Slow) {
            self.shared.ledger.gone(&self.name, LATE / 2);
            self.takes(LATE / 2).await;
        }
        if self.strikes(Fault::Down) {
            self.shared.down.store(true, Ordering::Relaxed);
            let (shared, outage) = (Arc::clone(&self.shared), faults.dice().time(LATE));
            tokio::spawn(async move {
                sleep(outage).await;
                shared.down.store(false, Ordering::Relaxed);
            });
        }
        if self.shared.down.load(Ordering::Relaxed) && !faults.is_calm() {
            self.shared.ledger.gone(&self.name, Duration::ZERO);
            return Err(Error::new(Kind::Unavailable, format!("{what}: the store is down")));
        }
        if self.strikes(Fault::Fails) {
            self.shared.ledger.trouble(&self.name);
            return Err(Error::new(Kind::Unavailable, format!("{what}: could not reach the store")));
        }
        Ok(())
    }

    /// Writes to the inner store and lets the checker see it.
    async fn write(&self, commit: &Arc<Commit>) -> Result<CommitOutcome> {
        let sabotaged = sabotage::commit(self, commit).await?;
        let outcome = if self.shared.atomic && !planted(Bug::CheckpointFirst) {
            self.shared.inner.commit(sabotaged).await?
        } else {
            self.one_by_one(&sabotaged).await?
        };
        self.shared.trace.note(|| format!("{}: {}: {outcome:?}", self.name, in_short(commit)));
        for violation in self.shared.checker.look(&self.shared.inner, commit).await? {
            self.shared.trace.note(|| violation);
        }
        Ok(outcome)
    }

    /// Writes each document separately, collection by collection, and the checkpoint last.
    async fn one_by_one(&self, commit: &Commit) -> Result<CommitOutcome> {
        let advance = Commit { advance: commit.advance.clone(), changes: Vec::new() };
        if planted(Bug::CheckpointFirst) {
            let outcome = self.shared.inner.commit(Arc::new(advance.clone())).await?;
            if !matches!(outcome, CommitOutcome::Applied) {
                return Ok(outcome);
            }
            self.takes(Duration::from_millis(1)).await;
        }
        let mut conflict = CommitConflict::default();
        for changes in &commit.changes {
            let mut writes: Vec<_> = changes.writes.iter().collect();
            if self.strikes(Fault::Disorder) {
                self.shared.faults.dice().shuffle(&mut writes);
            }
            for (at, write) in writes.iter().enumerate() {
                if self.strikes(Fault::Trailing) {
                    let rest = writes[at..].iter().copied().cloned().collect();
                    tokio::spawn(self.clone().write_late(changes.collection.clone(), rest));
                    return Ok(CommitOutcome::Unknown(Error::new(
                        Kind::Unknown,
                        "part of it may still be written",
                    )));
                }
                if self.strikes(Fault::Refused) {
                    conflict.documents.push((changes.collection.clone(), write.record.id.clone()));
                    continue;
                }
                let one = alone(&changes.collection, (*write).clone());
                if let CommitOutcome::Conflict(more) = self.shared.inner.commit(one).await? {
                    conflict.documents.extend(more.documents);
                }
                if self.strikes(Fault::Halfway) {
                    return Ok(CommitOutcome::Unknown(Error::new(
                        Kind::Unknown,
                        "part of it may be written",
                    )));
                }
                self.takes(Duration::from_micros(100)).await;
            }
            if !conflict.documents.is_empty() {
                return Ok(CommitOutcome::Conflict(conflict));
            }
        }
        if planted(Bug::CheckpointFirst) {
            return Ok(CommitOutcome::Applied);
        }
        self.shared.inner.commit(Arc::new(advance)).await
    }

    /// Does the rest of a commit late, each write with its own delay.
    async fn write_late(self, collection: Collection, writes: Vec<DocumentWrite>) {
        for write in writes {
            self.takes(LATE / 4).await;
            let one = alone(&collection, write);
            let outcome = self.shared.inner.commit(Arc::clone(&one)).await;
            self.shared.trace.note(|| format!("{}: late, {}: {outcome:?}", self.name, in_short(&one)));
            for violation in self.shared.checker.look(&self.shared.inner, &one).await.unwrap_or_default() {
                self.shared.trace.note(|| violation);
            }
        }
    }

    /// Returns a conflict as if others had changed the documents of a commit.
    fn storm(&self, commit: &Commit) -> CommitOutcome {
        let writes = commit.changes.iter().flat_map(|changes| {
            changes.writes.iter().map(|write| (changes.collection.clone(), write.record.id.clone()))
        });
        let mut documents: Vec<_> = writes.collect();
        documents.retain(|_| self.shared.faults.dice().happens(500));
        CommitOutcome::Conflict(CommitConflict { checkpoint: documents.is_empty(), documents })
    }

    async fn read_past(&self, collection: &Collection, ids: Vec<DocumentId>) -> Result<Vec<Record>> {
        let mut found = Vec::new();
        for id in ids {
            let now = self.shared.inner.load(collection, vec![id.clone()]).await?.pop();
            let before = {
                let mut past = self.shared.past.lock().unwrap_or_else(PoisonError::into_inner);
                past.insert((collection.clone(), id), now.clone())
            };
            found.extend(match before {
                Some(before) if self.strikes(Fault::Stale) => before,
                _ => now,
            });
        }
        Ok(found)
    }
}

/// Returns a commit of a single write.
fn alone(collection: &Collection, write: DocumentWrite) -> Arc<Commit> {
    let changes = CollectionWrites { collection: collection.clone(), writes: vec![write] };
    Arc::new(Commit { advance: None, changes: vec![changes] })
}

/// Formats a commit in one line.
fn in_short(commit: &Commit) -> String {
    let parked = |parked: &Parked| {
        let Parked { position, from, through, .. } = parked;
        let anew = if parked.anew { "anew " } else { "" };
        format!(" {anew}parked at {position} from {from} through {through}")
    };
    let write = |write: &DocumentWrite| {
        let was = write.expected.as_ref().map(|was| was.mark.to_string()).unwrap_or_default();
        let header = &write.record.header;
        let parked = header.parked.as_deref().map(parked).unwrap_or_default();
        format!(" {} {was}→{}{parked}", write.record.id, header.mark)
    };
    let changes = commit.changes.iter().map(|changes| {
        let writes: String = changes.writes.iter().map(write).collect();
        format!(", in {}:{writes}", changes.collection)
    });
    let changes: String = changes.collect();
    match &commit.advance {
        Some(advance) => {
            format!("{} from {} to {}{changes}", advance.projection, advance.from, advance.to.mark)
        }
        None => format!("mends{changes}"),
    }
}

impl Log for SimStore {
    fn partitions(&self) -> u16 {
        self.shared.inner.partitions()
    }

    async fn heads(&self) -> Result<Mark> {
        self.answer("heads", self.shared.inner.heads()).await
    }

    async fn read(&self, partition: Partition, after: Position, limit: Limit) -> Result<LogPage> {
        self.answer("read", async {
            Ok(sabotage::page(self.shared.inner.read(partition, after, limit).await?))
        })
        .await
    }

    async fn read_stream(&self, stream: &StreamId, after: Revision, limit: Limit) -> Result<Vec<Event>> {
        self.answer("read stream", self.shared.inner.read_stream(stream, after, limit)).await
    }

    async fn grown(&self, beyond: &Mark) -> Result<()> {
        self.answer("wait for growth", self.shared.inner.grown(beyond)).await
    }
}

impl Append for SimStore {
    async fn append(
        &self,
        stream: StreamId,
        expected: Expected,
        entries: Vec<Entry>,
    ) -> Result<Appended, AppendError> {
        let unknown = sabotage::unknown_append(&stream);
        self.answer("append", async {
            if self.strikes(Fault::LostUnknown) {
                return Err(unknown);
            }
            let entries = sabotage::entries(self, entries);
            if self.strikes(Fault::Delayed) {
                let inner = self.shared.inner.clone();
                let late = self.shared.faults.dice().time(LATE);
                tokio::spawn(async move {
                    sleep(late).await;
                    let _ = inner.append(stream, expected, entries).await;
                });
                return Err(unknown);
            }
            let answer = self.shared.inner.append(stream, expected, entries).await;
            self.takes(Duration::from_millis(1)).await;
            if self.strikes(Fault::AppliedUnknown) { Err(unknown) } else { answer }
        })
        .await
    }
}

impl Documents for SimStore {
    async fn prepare(&self, collection: &Collection) -> Result<()> {
        self.shared.inner.prepare(collection).await
    }

    async fn load(&self, collection: &Collection, ids: Vec<DocumentId>) -> Result<Vec<Record>> {
        self.answer("load", self.read_past(collection, ids)).await
    }

    async fn load_current(&self, collection: &Collection, ids: Vec<DocumentId>) -> Result<Vec<Record>> {
        if planted(Bug::StaleStreams) {
            return self.load(collection, ids).await;
        }
        self.answer("load current", self.shared.inner.load(collection, ids)).await
    }

    async fn commit(&self, commit: Arc<Commit>) -> Result<CommitOutcome> {
        self.answer("commit", async {
            let unknown = || Ok(sabotage::unknown_commit());
            if self.strikes(Fault::LostUnknown) {
                return unknown();
            }
            if self.strikes(Fault::Storm) {
                return Ok(self.storm(&commit));
            }
            let delayed = self.strikes(Fault::Delayed);
            if delayed || planted(Bug::AcknowledgeEarly) {
                let late = if delayed { LATE } else { Duration::from_millis(5) };
                let (store, late) = (self.clone(), self.shared.faults.dice().time(late));
                tokio::spawn(async move {
                    sleep(late).await;
                    let _ = store.write(&commit).await;
                });
                return if delayed { unknown() } else { Ok(CommitOutcome::Applied) };
            }
            let outcome = self.write(&commit).await?;
            self.takes(Duration::from_millis(1)).await;
            if self.strikes(Fault::AppliedUnknown) {
                return unknown();
            }
            sabotage::outcome(self, &commit, outcome).await
        })
        .await
    }

    async fn scan(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> Result<Vec<Record>> {
        self.answer("scan", self.shared.inner.scan(collection, after, limit)).await
    }

    async fn parked(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> Result<Vec<Record>> {
        self.answer("list parked", self.shared.inner.parked(collection, after, limit)).await
    }

    async fn count(&self, collection: &Collection) -> Result<DocumentCounts> {
        self.answer("count", self.shared.inner.count(collection)).await
    }

    async fn checkpoint(&self, projection: &Collection) -> Result<Checkpoint> {
        self.answer("read checkpoint", self.shared.inner.checkpoint(projection)).await
    }

    async fn advanced(&self, projection: &Collection, from: &Mark) -> Result<Mark> {
        self.answer("wait for a step", self.shared.inner.advanced(projection, from)).await
    }

    async fn claim(&self, projection: &Collection, owner: &str, lease: Duration) -> Result<Claim> {
        self.answer("claim", async {
            let mut claim = self.shared.inner.claim(projection, owner, lease).await?;
            if claim != Claim::Ours && self.strikes(Fault::Lease) {
                let holder = {
                    let holders = self.shared.holders.lock().unwrap_or_else(PoisonError::into_inner);
                    holders.get(projection).cloned()
                };
                if let Some(holder) = holder {
                    self.shared.inner.release(projection, &holder).await?;
                }
                claim = self.shared.inner.claim(projection, owner, lease).await?;
            }
            if claim == Claim::Ours {
                let mut holders = self.shared.holders.lock().unwrap_or_else(PoisonError::into_inner);
                holders.insert(projection.clone(), owner.into());
            }
            Ok(claim)
        })
        .await
    }

    async fn release(&self, projection: &Collection, owner: &str) -> Result<()> {
        self.answer("release", self.shared.inner.release(projection, owner)).await
    }

    async fn generations(&self, collection: &Collection) -> Result<Generations> {
        self.answer("look for generations", self.shared.inner.generations(collection)).await
    }

    async fn put_generations(&self, collection: &Collection, seen: u64, next: Generations) -> Result<bool> {
        self.answer("keep generations", async {
            let unknown = || Err(Error::new(Kind::Unknown, "keep generations: lost the connection"));
            if self.strikes(Fault::LostUnknown) {
                return unknown();
            }
            let before = self.shared.inner.generations(collection).await?.live.number;
            let after = next.live.number;
            let is_kept = self.shared.inner.put_generations(collection, seen, next).await?;
            if is_kept && before != after {
                self.shared.trace.note(|| format!("{}: {collection} from {before} to {after}", self.name));
                let (before, after) = (collection.generation(before), collection.generation(after));
                self.shared.checker.switched(&self.shared.inner, &before, &after, self.shared.atomic).await?;
            }
            if self.strikes(Fault::AppliedUnknown) { unknown() } else { Ok(is_kept) }
        })
        .await
    }

    async fn drop_generation(&self, generation: &Collection) -> Result<()> {
        self.answer("drop a generation", self.shared.inner.drop_generation(generation)).await
    }
}
