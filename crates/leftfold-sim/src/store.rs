//! A store that misbehaves as real ones do, on command of the dice. With all faults off it is the store in memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leftfold::documents::{Changes, Checkpoint, Claim, Commit, Conflict, Counts, Outcome, Record};
use leftfold::log::{AppendError, Appended, Entry, Limit, Page};
use leftfold::{
    Append, Collection, DocumentId, Documents, Error, Event, Expected, Kind, Log, Mark, Memory, Partition,
    Position, Result, Revision, StreamId,
};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::checker::Checker;
use crate::faults::{Fault, Faults};
use crate::trace::Trace;

/// What all handles to one simulated store share.
pub struct Shared {
    inner: Memory,
    /// Whether a commit is one transaction.
    atomic: bool,
    pub faults: Faults,
    pub trace: Trace,
    pub checker: Checker,
    past: Mutex<HashMap<(Collection, DocumentId), Option<Record>>>,
    down: AtomicBool,
}

/// A handle to the simulated store, as one worker has it.
#[derive(Clone)]
pub struct SimStore {
    shared: Arc<Shared>,
    name: Arc<str>,
    gate: Arc<Gate>,
}

/// While it is closed, its worker stands still.
#[derive(Default)]
pub struct Gate {
    closed: AtomicBool,
    opened: Notify,
}

impl Gate {
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

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
    pub fn new(partitions: u16, atomic: bool, faults: Faults) -> Self {
        let shared = Shared {
            inner: Memory::new(partitions),
            atomic,
            faults,
            trace: Trace::new(),
            checker: Checker::default(),
            past: Mutex::default(),
            down: AtomicBool::new(false),
        };
        shared.trace.note(|| {
            format!("{partitions} partitions, {}", if atomic { "transactions" } else { "no transactions" })
        });
        Self { shared: Arc::new(shared), name: "outside".into(), gate: Arc::default() }
    }

    /// A handle for a worker, with a gate of its own.
    pub fn worker(&self, name: &str) -> Self {
        Self { shared: Arc::clone(&self.shared), name: name.into(), gate: Arc::default() }
    }

    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The truth, without faults.
    pub fn inner(&self) -> &Memory {
        &self.shared.inner
    }

    fn strikes(&self, fault: Fault) -> bool {
        let strikes = self.shared.faults.strikes(fault);
        if strikes {
            self.shared.trace.note(|| format!("{}: {fault:?}", self.name));
        }
        strikes
    }

    /// What every operation goes through before it does anything.
    async fn enter(&self, what: &str) -> Result<()> {
        self.gate.pass().await;
        let faults = &self.shared.faults;
        sleep(faults.dice().time(Duration::from_millis(2))).await;
        if self.strikes(Fault::Slow) {
            sleep(faults.dice().time(Duration::from_secs(20))).await;
        }
        if self.strikes(Fault::Down) {
            self.shared.down.store(true, Ordering::Relaxed);
            let (shared, outage) = (Arc::clone(&self.shared), faults.dice().time(Duration::from_secs(30)));
            tokio::spawn(async move {
                sleep(outage).await;
                shared.down.store(false, Ordering::Relaxed);
            });
        }
        if self.shared.down.load(Ordering::Relaxed) && !faults.is_calm() {
            return Err(Error::new(Kind::Unavailable, format!("{what}: the store is down")));
        }
        if self.strikes(Fault::Fails) {
            return Err(Error::new(Kind::Unavailable, format!("{what}: could not reach the store")));
        }
        Ok(())
    }

    /// Writes for real, and lets the checker see it.
    async fn write(&self, commit: &Arc<Commit>) -> Result<Outcome> {
        let outcome = if self.shared.atomic {
            self.shared.inner.commit(Arc::clone(commit)).await?
        } else {
            self.one_by_one(commit).await?
        };
        self.shared.trace.note(|| {
            let to = commit.advance.as_ref().map(|advance| advance.to.mark.to_string()).unwrap_or_default();
            let writes = commit.changes.iter().flat_map(|changes| &changes.writes).map(|write| {
                let (record, parked) = (&write.record, write.record.header.parked.as_ref());
                let was = write.expected.as_ref().map(|was| was.mark.to_string()).unwrap_or_default();
                let parked = parked
                    .map(|parked| {
                        format!(
                            " parked at {} from {} through {}",
                            parked.position, parked.from, parked.through
                        )
                    })
                    .unwrap_or_default();
                format!("{} {was}→{}{parked}", record.id, record.header.mark)
            });
            format!("{}: commit to {to} [{}]: {outcome:?}", self.name, writes.collect::<Vec<_>>().join(", "))
        });
        for violation in self.shared.checker.look(&self.shared.inner, commit).await? {
            self.shared.trace.note(|| violation);
        }
        Ok(outcome)
    }

    /// Each document on its own, collection after collection, and the checkpoint at last.
    async fn one_by_one(&self, commit: &Commit) -> Result<Outcome> {
        let mut conflict = Conflict::default();
        for changes in &commit.changes {
            for write in &changes.writes {
                let one = Changes { collection: changes.collection.clone(), writes: vec![write.clone()] };
                let one = Commit { advance: None, changes: vec![one] };
                if let Outcome::Conflict(more) = self.shared.inner.commit(Arc::new(one)).await? {
                    conflict.documents.extend(more.documents);
                }
                if self.strikes(Fault::LostUnknown) {
                    return Ok(Outcome::Unknown(Error::new(Kind::Unknown, "part of it may be written")));
                }
                sleep(self.shared.faults.dice().time(Duration::from_micros(100))).await;
            }
            if !conflict.documents.is_empty() {
                return Ok(Outcome::Conflict(conflict));
            }
        }
        let advance = Commit { advance: commit.advance.clone(), changes: Vec::new() };
        self.shared.inner.commit(Arc::new(advance)).await
    }
}

impl Log for SimStore {
    fn partitions(&self) -> u16 {
        self.shared.inner.partitions()
    }

    async fn heads(&self) -> Result<Mark> {
        self.enter("heads").await?;
        self.shared.inner.heads().await
    }

    async fn read(&self, partition: Partition, after: Position, limit: Limit) -> Result<Page> {
        self.enter("read").await?;
        self.shared.inner.read(partition, after, limit).await
    }

    async fn read_stream(&self, stream: &StreamId, after: Revision, limit: Limit) -> Result<Vec<Event>> {
        self.enter("read stream").await?;
        self.shared.inner.read_stream(stream, after, limit).await
    }

    async fn grown(&self, beyond: &Mark) -> Result<()> {
        self.enter("wait for growth").await?;
        self.shared.inner.grown(beyond).await
    }
}

impl Append for SimStore {
    async fn append(
        &self,
        stream: StreamId,
        expected: Expected,
        entries: Vec<Entry>,
    ) -> Result<Appended, AppendError> {
        self.enter("append").await?;
        let unknown = || Err(AppendError::Store(Error::new(Kind::Unknown, "append: lost the connection")));
        if self.strikes(Fault::LostUnknown) {
            return unknown();
        }
        if self.strikes(Fault::Delayed) {
            let (inner, late) =
                (self.shared.inner.clone(), self.shared.faults.dice().time(Duration::from_secs(40)));
            tokio::spawn(async move {
                sleep(late).await;
                let _ = inner.append(stream, expected, entries).await;
            });
            return unknown();
        }
        let answer = self.shared.inner.append(stream, expected, entries).await;
        sleep(self.shared.faults.dice().time(Duration::from_millis(1))).await;
        if self.strikes(Fault::AppliedUnknown) {
            return unknown();
        }
        answer
    }
}

impl Documents for SimStore {
    async fn prepare(&self, collection: &Collection) -> Result<()> {
        self.shared.inner.prepare(collection).await
    }

    async fn load(&self, collection: &Collection, ids: Vec<DocumentId>) -> Result<Vec<Record>> {
        self.enter("load").await?;
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

    async fn load_current(&self, collection: &Collection, ids: Vec<DocumentId>) -> Result<Vec<Record>> {
        self.enter("load current").await?;
        self.shared.inner.load(collection, ids).await
    }

    async fn commit(&self, commit: Arc<Commit>) -> Result<Outcome> {
        self.enter("commit").await?;
        let unknown = || Ok(Outcome::Unknown(Error::new(Kind::Unknown, "commit: lost the connection")));
        if self.strikes(Fault::LostUnknown) {
            return unknown();
        }
        if self.strikes(Fault::Delayed) {
            let (store, late) = (self.clone(), self.shared.faults.dice().time(Duration::from_secs(40)));
            tokio::spawn(async move {
                sleep(late).await;
                let _ = store.write(&commit).await;
            });
            return unknown();
        }
        let outcome = self.write(&commit).await?;
        sleep(self.shared.faults.dice().time(Duration::from_millis(1))).await;
        if self.strikes(Fault::AppliedUnknown) {
            return unknown();
        }
        Ok(outcome)
    }

    async fn scan(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> Result<Vec<Record>> {
        self.enter("scan").await?;
        self.shared.inner.scan(collection, after, limit).await
    }

    async fn parked(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> Result<Vec<Record>> {
        self.enter("list parked").await?;
        self.shared.inner.parked(collection, after, limit).await
    }

    async fn count(&self, collection: &Collection) -> Result<Counts> {
        self.enter("count").await?;
        self.shared.inner.count(collection).await
    }

    async fn checkpoint(&self, projection: &Collection) -> Result<Checkpoint> {
        self.enter("read checkpoint").await?;
        self.shared.inner.checkpoint(projection).await
    }

    async fn advanced(&self, projection: &Collection, from: &Mark) -> Result<()> {
        self.enter("wait for a step").await?;
        self.shared.inner.advanced(projection, from).await
    }

    async fn claim(&self, projection: &Collection, owner: &str, lease: Duration) -> Result<Claim> {
        self.enter("claim").await?;
        self.shared.inner.claim(projection, owner, lease).await
    }

    async fn release(&self, projection: &Collection, owner: &str) -> Result<()> {
        self.enter("release").await?;
        self.shared.inner.release(projection, owner).await
    }
}
