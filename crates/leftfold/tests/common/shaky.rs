//! A store that misbehaves as real ones do: unknown outcomes, writes that are applied in part, one
//! by one and without transactions, errors, and stale reads.
#![allow(unreachable_pub, clippy::unwrap_used, reason = "part of a test")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leftfold::documents::{Collection, Commit, CommitConflict, CommitOutcome, Record};
use leftfold::log::{Limit, LogPage};
use leftfold::{
    Append, DocumentId, Documents, Error, Kind, Log, Memory, Partition, Position, Result, delegate,
};

type Past = HashMap<(Collection, DocumentId), Option<Record>>;

#[derive(Clone)]
pub struct Shaky {
    pub inner: Memory,
    pub transactions: bool,
    dice: Arc<AtomicU64>,
    /// Earlier versions of each document, which loads return now and then.
    stale: Arc<Mutex<Past>>,
    pub calm: Arc<std::sync::atomic::AtomicBool>,
    pub unknowns: Arc<AtomicU64>,
    /// The duration of a commit.
    pub slow: Duration,
    /// If set, the next commit succeeds but its answer is lost.
    pub deaf: Arc<std::sync::atomic::AtomicBool>,
}

impl Shaky {
    pub fn new(seed: u64, transactions: bool) -> Self {
        Self {
            inner: Memory::default(),
            transactions,
            dice: Arc::new(AtomicU64::new(seed)),
            stale: Arc::default(),
            calm: Arc::default(),
            unknowns: Arc::default(),
            slow: Duration::ZERO,
            deaf: Arc::default(),
        }
    }

    /// Returns `true` one time in `n`, unless all is calm.
    fn one_in(&self, n: u64) -> bool {
        let mut z = self.dice.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        !self.calm.load(Ordering::SeqCst) && (z ^ (z >> 31)).is_multiple_of(n)
    }

    fn unknown(&self) -> CommitOutcome {
        self.unknowns.fetch_add(1, Ordering::SeqCst);
        CommitOutcome::Unknown(Error::new(Kind::Unknown, "lost the connection"))
    }

    fn fails(&self) -> Result<()> {
        if self.one_in(50) { Err(Error::new(Kind::Unavailable, "can't reach it")) } else { Ok(()) }
    }

    /// Writes each document under its own guard, then the checkpoint, as a store without
    /// transactions does.
    async fn one_by_one(&self, commit: &Commit) -> Result<CommitOutcome> {
        let mut conflict = CommitConflict::default();
        for changes in &commit.changes {
            for write in &changes.writes {
                if self.one_in(60) {
                    return Ok(self.unknown());
                }
                let changes = vec![leftfold::documents::CollectionWrites {
                    collection: changes.collection.clone(),
                    writes: vec![write.clone()],
                }];
                match self.inner.commit(Arc::new(Commit { advance: None, changes })).await? {
                    CommitOutcome::Conflict(more) => conflict.documents.extend(more.documents),
                    CommitOutcome::Applied | CommitOutcome::Unknown(_) => {}
                }
            }
            if !conflict.documents.is_empty() {
                break;
            }
        }
        if conflict.documents.is_empty() {
            let advance = commit.advance.clone();
            return self.inner.commit(Arc::new(Commit { advance, changes: vec![] })).await;
        }
        Ok(CommitOutcome::Conflict(conflict))
    }
}

/// Time and randomness that depend only on the seed.
pub struct Seeded(pub AtomicU64);

impl leftfold::Env for Seeded {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }

    fn random(&self) -> u64 {
        self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }
}

impl Log for Shaky {
    delegate!(inner: partitions, heads, read_stream, grown);

    async fn read(&self, partition: Partition, after: Position, limit: Limit) -> Result<LogPage> {
        self.fails()?;
        self.inner.read(partition, after, limit).await
    }
}

impl Append for Shaky {
    delegate!(inner: Append);
}

impl Documents for Shaky {
    delegate!(
        inner: prepare, scan, parked, count, checkpoint, advanced, claim, release,
        generations, put_generations, drop_generation
    );

    async fn load(&self, collection: &Collection, ids: Vec<DocumentId>) -> Result<Vec<Record>> {
        self.fails()?;
        let mut found = Vec::new();
        for id in ids {
            let fresh = self.inner.load(collection, vec![id.clone()]).await?.pop();
            let before = self.stale.lock().unwrap().insert((collection.clone(), id), fresh.clone());
            found.extend(match before {
                Some(before) if self.one_in(5) => before,
                _ => fresh,
            });
        }
        Ok(found)
    }

    async fn load_current(&self, collection: &Collection, ids: Vec<DocumentId>) -> Result<Vec<Record>> {
        self.inner.load(collection, ids).await
    }

    async fn commit(&self, commit: Arc<Commit>) -> Result<CommitOutcome> {
        if !self.slow.is_zero() {
            tokio::time::sleep(self.slow).await;
        }
        if self.one_in(20) {
            return Ok(self.unknown());
        }
        self.fails()?;
        let outcome = if self.transactions {
            self.inner.commit(commit.clone()).await?
        } else {
            self.one_by_one(&commit).await?
        };
        if self.deaf.swap(false, Ordering::SeqCst) {
            return Ok(self.unknown());
        }
        if self.one_in(15) {
            // Sometimes the commit arrives once more, later, like a delayed packet.
            if self.one_in(3) {
                let (store, commit) = (self.inner.clone(), commit);
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(3)).await;
                    let _ = store.commit(commit).await;
                });
            }
            return Ok(self.unknown());
        }
        Ok(outcome)
    }
}
