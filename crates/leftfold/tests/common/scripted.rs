//! A store in memory that a test scripts: commits with an unknown outcome, and other writers' work
//! between two calls.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "part of tests, each of which uses its own"
)]

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use leftfold::documents::{Checkpoint, Collection, Commit, CommitOutcome, Record};
use leftfold::{Append, DocumentId, Documents, Error, Kind, Log, Memory, Result, delegate};

/// The fault of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The outcome is unknown; nothing is written.
    LostBefore,
    /// The outcome is unknown; the commit is written.
    LostAfter,
    /// The commit fails permanently; nothing is written.
    Refused,
}

/// A call before which other writers' work can be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Load,
    Commit,
    Checkpoint,
}

type Hook = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Clone, Default)]
pub struct Scripted {
    pub inner: Memory,
    faults: Arc<Mutex<VecDeque<Fault>>>,
    hooks: Arc<Mutex<Vec<(Call, Hook)>>>,
    commits: Arc<Mutex<Vec<Arc<Commit>>>>,
}

impl Scripted {
    /// Scripts the faults of the next commits, in order; later commits succeed.
    pub fn fault(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.lock().unwrap().extend(faults);
    }

    /// Returns the number of faults that have not happened yet.
    pub fn faults_left(&self) -> usize {
        self.faults.lock().unwrap().len()
    }

    /// Runs this once, before the next such call continues.
    pub fn before(&self, call: Call, hook: impl Future<Output = ()> + Send + 'static) {
        self.hooks.lock().unwrap().push((call, Box::pin(hook)));
    }

    /// Returns all attempted commits.
    pub fn commits(&self) -> Vec<Arc<Commit>> {
        self.commits.lock().unwrap().clone()
    }

    async fn reached(&self, call: Call) {
        let hook = {
            let mut hooks = self.hooks.lock().unwrap();
            let next = hooks.iter().position(|(at, _)| *at == call);
            next.map(|next| hooks.remove(next).1)
        };
        if let Some(hook) = hook {
            hook.await;
        }
    }
}

impl Log for Scripted {
    delegate!(inner: Log);
}

impl Append for Scripted {
    delegate!(inner: Append);
}

impl Documents for Scripted {
    delegate!(
        inner: prepare, scan, parked, count, advanced, claim, release, generations,
        put_generations, drop_generation
    );

    async fn load(&self, collection: &Collection, ids: Vec<DocumentId>) -> Result<Vec<Record>> {
        self.reached(Call::Load).await;
        self.inner.load(collection, ids).await
    }

    async fn commit(&self, commit: Arc<Commit>) -> Result<CommitOutcome> {
        self.reached(Call::Commit).await;
        self.commits.lock().unwrap().push(commit.clone());
        let fault = self.faults.lock().unwrap().pop_front();
        let lost = || Ok(CommitOutcome::Unknown(Error::new(Kind::Unknown, "lost the connection")));
        match fault {
            None => self.inner.commit(commit).await,
            Some(Fault::LostBefore) => lost(),
            Some(Fault::LostAfter) => {
                let _ = self.inner.commit(commit).await?;
                lost()
            }
            Some(Fault::Refused) => Err(Error::new(Kind::Store, "the disk is full")),
        }
    }

    async fn checkpoint(&self, projection: &Collection) -> Result<Checkpoint> {
        self.reached(Call::Checkpoint).await;
        self.inner.checkpoint(projection).await
    }
}
