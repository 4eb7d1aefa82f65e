//! Transactions, with a retry loop of our own: the driver's loop retries for two minutes and does
//! not separate unknown outcomes from failures.
//!
//! A process that dies or hangs in the middle of a transaction leaves it open. Its writes block
//! others until the server aborts it after a minute. A blocked writer looks for such transactions
//! and aborts them. That is always safe: the owner runs its transaction again.

use std::future::Future;
use std::time::Duration;

use bson::{Bson, Document, RawDocumentBuf, doc};
use leftfold::{Backoff, Env as _, System};
use mongodb::ClientSession;
use mongodb::options::{ReadConcern, WriteConcern};
use tokio::time::{Instant, sleep, timeout};

use super::{Base, MAX_IDS, batch, with_timeout};
use crate::error::{Failure, is_duplicate};

/// The time within which a transaction is retried.
const MAX_RETRY_TIME: Duration = Duration::from_secs(8);
/// The time within which a commit is retried.
const MAX_COMMIT_TIME: Duration = Duration::from_secs(6);
/// The idle time after which a transaction counts as abandoned.
const ABANDONED_AFTER: Duration = Duration::from_secs(1);
/// The interval at which blocked writers look for abandoned transactions.
const LOOK: Duration = Duration::from_millis(300);

/// The decision at the end of a transaction's work.
pub(crate) enum Step<T> {
    /// Commit the transaction.
    Keep(T),
    /// Abort the transaction.
    CallOff(T),
}

/// The outcome of a transaction.
pub(crate) enum Ended<T> {
    /// The writes are stored durably.
    Committed(T),
    /// Nothing was written.
    CalledOff(T),
    /// The outcome is unknown.
    Unknown(Failure),
}

/// The work of a transaction. It may run more than once.
pub(crate) trait Work: Sync {
    type Answer: Send;

    fn run(
        &self,
        session: &mut ClientSession,
    ) -> impl Future<Output = Result<Step<Self::Answer>, Failure>> + Send;
}

/// Returns the write concern of all writes. With a weaker one, a failover loses acknowledged
/// writes.
pub(crate) fn durable() -> WriteConcern {
    let mut concern = WriteConcern::majority();
    concern.journal = Some(true);
    concern.w_timeout = Some(Duration::from_secs(10));
    concern
}

impl Base {
    /// Runs work in a transaction and retries it after conflicts. `Err` means that nothing was
    /// written.
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
            if !failure.is_repeatable() || begun.elapsed() > MAX_RETRY_TIME {
                return Err(failure);
            }
            if looked.elapsed() > LOOK {
                looked = Instant::now();
                if let Err(failure) = self.abort_abandoned().await {
                    tracing::debug!(?failure, "could not look for abandoned transactions");
                }
            }
            sleep(delays.next().unwrap_or_default()).await;
        }
    }

    /// Runs work in a transaction without retries. `Err` means that nothing was written.
    pub(crate) async fn transact_once<W: Work>(&self, work: &W) -> Result<Ended<W::Answer>, Failure> {
        let mut session = self.client.start_session().causal_consistency(false).await?;
        session
            .start_transaction()
            .read_concern(ReadConcern::snapshot())
            .write_concern(durable())
            .max_commit_time(Duration::from_secs(5))
            .await?;
        match with_timeout(work.run(&mut session)).await? {
            Step::CallOff(answer) => {
                // If the abort fails, dropping the session aborts the transaction.
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

    /// Waits for a write outside a transaction. A dead process may have left a transaction open
    /// that blocks the write: this aborts such transactions.
    pub(crate) async fn unblocked<T>(&self, write: impl Future<Output = T>) -> T {
        let mut write = std::pin::pin!(write);
        loop {
            if let Ok(written) = timeout(LOOK, write.as_mut()).await {
                return written;
            }
            if let Err(failure) = self.abort_abandoned().await {
                tracing::debug!(?failure, "could not look for abandoned transactions");
            }
        }
    }

    /// Aborts idle transactions of processes with the same application name.
    async fn abort_abandoned(&self) -> Result<(), Failure> {
        let admin = self.client.database("admin");
        let idle = i64::try_from(ABANDONED_AFTER.as_micros()).unwrap_or(i64::MAX);
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
            tracing::info!(count = sessions.len(), "aborting abandoned transactions");
            admin.run_command(doc! { "killSessions": sessions }).await?;
        }
        Ok(())
    }
}

impl Base {
    /// Inserts all documents in a transaction. Returns `false` if one of them exists.
    pub(crate) async fn insert(
        &self,
        session: &mut ClientSession,
        collection: &str,
        documents: Vec<RawDocumentBuf>,
    ) -> Result<bool, Failure> {
        if documents.is_empty() {
            return Ok(true);
        }
        let all = self.db.collection::<RawDocumentBuf>(collection);
        match all.insert_many(documents).session(session).await {
            Ok(_) => Ok(true),
            Err(error) if is_duplicate(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Inserts documents that an earlier read in the transaction did not find.
    pub(crate) async fn insert_new(
        &self,
        session: &mut ClientSession,
        collection: &str,
        documents: Vec<RawDocumentBuf>,
    ) -> Result<(), Failure> {
        if self.insert(session, collection, documents).await? {
            return Ok(());
        }
        Err(Failure::damaged(format!("a document in {collection} exists that a query did not find")))
    }

    /// Returns the ids of the documents that exist, as the transaction sees them.
    pub(crate) async fn present(
        &self,
        session: &mut ClientSession,
        collection: &str,
        ids: Vec<impl Into<Bson> + Clone>,
    ) -> Result<Vec<RawDocumentBuf>, Failure> {
        let documents = self.db.collection::<RawDocumentBuf>(collection);
        let mut all = Vec::new();
        for ids in ids.chunks(MAX_IDS) {
            let find = documents.find(doc! { "_id": { "$in": ids.to_vec() } }).projection(doc! { "_id": 1 });
            let mut found = find.batch_size(batch(ids.len())).session(&mut *session).await?;
            while found.advance(session).await? {
                all.push(found.current().to_owned());
            }
        }
        Ok(all)
    }
}

enum Committed {
    Yes,
    No(Failure),
    Unknown(Failure),
}

/// Repeats the commit until its outcome is known or the time is up.
async fn commit(session: &mut ClientSession) -> Committed {
    let begun = Instant::now();
    let backoff = Backoff::default().first(Duration::from_millis(20)).most(Duration::from_millis(500));
    let mut delays = backoff.without_limit().delays(System.random());
    let mut is_retried = false;
    point!("commit");
    loop {
        let answer = timeout(MAX_COMMIT_TIME, session.commit_transaction()).await;
        let (failure, silent) = match answer {
            Ok(Ok(())) => {
                point!("committed");
                return Committed::Yes;
            }
            Ok(Err(error)) => (Failure::from(error), false),
            Err(_) => (Failure::silent(), true),
        };
        if failure.is_repeatable() && !is_retried && !silent {
            return Committed::No(failure);
        }
        if failure.is_repeatable() || begun.elapsed() > MAX_COMMIT_TIME {
            return Committed::Unknown(failure.unknown());
        }
        is_retried = true;
        sleep(delays.next().unwrap_or_default()).await;
    }
}
