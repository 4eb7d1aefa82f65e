//! Transactions: a loop of our own around them, since the driver's tries for two minutes and does not tell apart what
//! must be told apart.
//!
//! A process that dies or stands still in the middle of a transaction leaves it open, and what it has written stays
//! blocked for others until the server ends it: after a minute. Whoever runs into it for longer than a moment looks
//! for such transactions and ends them. That is always safe: who owned one runs it again.

use std::future::Future;
use std::time::Duration;

use bson::{Document, doc};
use leftfold::{Backoff, Env as _, System};
use mongodb::ClientSession;
use mongodb::options::{ReadConcern, WriteConcern};
use tokio::time::{Instant, sleep, timeout};

use crate::error::Failure;
use crate::{Base, patiently};

/// How long a transaction is run again and again.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long a commit is asked for again.
const COMMIT_PATIENCE: Duration = Duration::from_secs(6);
/// A transaction in which nothing has happened for so long has lost its owner, or might as well have.
const FORSAKEN: Duration = Duration::from_secs(1);
/// How often those who are in each other's way look for such transactions.
const LOOK: Duration = Duration::from_millis(300);

/// What a transaction's work comes to.
pub(crate) enum Step<T> {
    /// It is to be committed.
    Keep(T),
    /// Nothing is to be written.
    CallOff(T),
}

/// What became of a transaction.
pub(crate) enum Ended<T> {
    /// It is stored, durably.
    Committed(T),
    /// Nothing was written.
    CalledOff(T),
    /// It can't be told.
    Unknown(Failure),
}

/// What is done in a transaction, maybe more than once.
pub(crate) trait Work: Sync {
    type Answer: Send;

    fn run(
        &self,
        session: &mut ClientSession,
    ) -> impl Future<Output = Result<Step<Self::Answer>, Failure>> + Send;
}

/// The write concern of everything that is written: with less, a failover loses what was acknowledged.
pub(crate) fn durable() -> WriteConcern {
    let mut concern = WriteConcern::majority();
    concern.journal = Some(true);
    concern.w_timeout = Some(Duration::from_secs(10));
    concern
}

impl Base {
    /// Runs work in a transaction, again where others were in the way. `Err` means that nothing was written.
    pub(crate) async fn transact<W: Work>(&self, work: W) -> Result<Ended<W::Answer>, Failure> {
        let begun = Instant::now();
        let backoff = Backoff::default().first(Duration::from_millis(2)).most(Duration::from_millis(100));
        let mut delays = backoff.without_limit().delays(System.random());
        let mut looked = begun;
        loop {
            let failure = match self.transact_once(&work).await {
                Ok(ended) => return Ok(ended),
                Err(failure) => failure,
            };
            if !failure.is_repeatable() || begun.elapsed() > PATIENCE {
                return Err(failure);
            }
            if looked.elapsed() > LOOK {
                looked = Instant::now();
                if let Err(failure) = self.end_forsaken().await {
                    tracing::debug!(?failure, "could not look for transactions that were left open");
                }
            }
            sleep(delays.next().unwrap_or_default()).await;
        }
    }

    /// Runs work in a transaction, but not again. `Err` means that nothing was written.
    pub(crate) async fn transact_once<W: Work>(&self, work: &W) -> Result<Ended<W::Answer>, Failure> {
        let mut session = self.client.start_session().causal_consistency(false).await?;
        session
            .start_transaction()
            .read_concern(ReadConcern::snapshot())
            .write_concern(durable())
            .max_commit_time(Duration::from_secs(5))
            .await?;
        match patiently(work.run(&mut session)).await? {
            Step::CallOff(answer) => {
                // What is not ended here ends when the session is dropped.
                let _ = session.abort_transaction().await;
                Ok(Ended::CalledOff(answer))
            }
            Step::Keep(answer) => match commit(&mut session).await {
                Committed::Yes => Ok(Ended::Committed(answer)),
                Committed::Unknown(failure) => Ok(Ended::Unknown(failure)),
                Committed::No(failure) => Err(failure),
            },
        }
    }

    /// Waits for a write that is not in a transaction. One that a program has left open, as it died, would hold it up for as long as the server
    /// lets it be: such are ended.
    pub(crate) async fn unblocked<T>(&self, write: impl Future<Output = T>) -> T {
        let mut write = std::pin::pin!(write);
        loop {
            if let Ok(written) = timeout(LOOK, write.as_mut()).await {
                return written;
            }
            if let Err(failure) = self.end_forsaken().await {
                tracing::debug!(?failure, "could not look for transactions that were left open");
            }
        }
    }

    /// Ends transactions of programs like this one in which nothing happens any more.
    async fn end_forsaken(&self) -> Result<(), Failure> {
        let admin = self.client.database("admin");
        let idle = i64::try_from(FORSAKEN.as_micros()).unwrap_or(i64::MAX);
        let pipeline = [
            doc! { "$currentOp": { "allUsers": false, "idleSessions": true } },
            doc! { "$match": { "appName": &self.app, "transaction.timeInactiveMicros": { "$gt": idle } } },
            doc! { "$project": { "lsid.id": 1 } },
        ];
        let mut found = admin.aggregate(pipeline).await?;
        let mut sessions = Vec::new();
        while found.advance().await? {
            let operation = Document::try_from(found.current())?;
            sessions.extend(operation.get_document("lsid").ok().cloned());
        }
        if !sessions.is_empty() {
            tracing::info!(count = sessions.len(), "ending transactions that were left open");
            admin.run_command(doc! { "killSessions": sessions }).await?;
        }
        Ok(())
    }
}

enum Committed {
    Yes,
    No(Failure),
    Unknown(Failure),
}

/// Asks for the commit until it is known what became of it, or patience ends.
async fn commit(session: &mut ClientSession) -> Committed {
    let begun = Instant::now();
    let backoff = Backoff::default().first(Duration::from_millis(20)).most(Duration::from_millis(500));
    let mut delays = backoff.without_limit().delays(System.random());
    let mut asked = false;
    point!("commit");
    loop {
        let answer = timeout(COMMIT_PATIENCE, session.commit_transaction()).await;
        let (failure, silent) = match answer {
            Ok(Ok(())) => {
                point!("committed");
                return Committed::Yes;
            }
            Ok(Err(error)) => (Failure::from(error), false),
            Err(_) => (Failure::silent(), true),
        };
        if failure.is_repeatable() && !asked && !silent {
            return Committed::No(failure);
        }
        if failure.is_repeatable() || begun.elapsed() > COMMIT_PATIENCE {
            return Committed::Unknown(failure.unknown());
        }
        asked = true;
        sleep(delays.next().unwrap_or_default()).await;
    }
}
