//! The hidden collection that holds the records of requests.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use leftfold::documents::{CollectionWrites, Commit, CommitOutcome, DocumentWrite, Header, Record};
use leftfold::{Backoff, Collection, DocumentId, Documents, Env as _, Json, Lane, Mark, System};
use tokio::sync::OnceCell;
use tokio::time::sleep;

use super::records::RequestRecords;
use crate::problem::Problem;
use crate::{Backend, Shared};

/// The number of documents that hold the records.
const DOCUMENTS: u8 = 64;

/// The requests with a key that this process is working on.
#[derive(Default)]
pub(crate) struct KeyedRequests {
    running: Mutex<HashSet<u64>>,
    prepared: OnceCell<Collection>,
}

impl KeyedRequests {
    pub(super) fn is_running(&self, attempt: u64) -> bool {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).contains(&attempt)
    }

    /// Marks an attempt as running, as long as the guard lives.
    pub(super) fn run(self: &Arc<Self>, attempt: u64) -> Running {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(attempt);
        Running(Arc::clone(self), attempt)
    }
}

/// A request that this process is working on, as long as the guard lives.
pub(super) struct Running(Arc<KeyedRequests>, u64);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

/// Changes the document that holds a request by compare-and-set, and retries until that succeeds.
pub(super) async fn change<S: Backend, T>(
    shared: &Shared<S>,
    key: &str,
    mut change: impl FnMut(&mut RequestRecords) -> T,
) -> Result<T, Problem> {
    let store = shared.app.store();
    let collection = shared.keyed_requests.prepared.get_or_try_init(|| prepared(store)).await?;
    let number = u8::from_str_radix(key.get(..2).unwrap_or_default(), 16).unwrap_or_default() % DOCUMENTS;
    let id = DocumentId::new(number.to_string())?;
    let lane = Lane::named("changes");
    let mut delays = Backoff::default().limit(10).delays(System.random());
    loop {
        let before = store.load_current(collection, vec![id.clone()]).await?.pop();
        let mut records: RequestRecords = match before.as_ref().and_then(|record| record.body.as_ref()) {
            Some(body) => body.to()?,
            None => RequestRecords::default(),
        };
        let unchanged = records.clone();
        let answer = change(&mut records);
        if records == unchanged {
            return Ok(answer);
        }
        let expected = before.map(|record| record.header);
        let changes = expected.as_ref().map_or(0, |header| header.mark.get(&lane));
        let mark = Mark::from_iter([(lane.clone(), changes + 1)]);
        let body = Some(Json::of(&records)?);
        let record = Record { id: id.clone(), header: Header { mark, parked: None }, body };
        let changes = CollectionWrites {
            collection: collection.clone(),
            writes: vec![DocumentWrite { expected, record }],
        };
        let outcome = store.commit(Arc::new(Commit { advance: None, changes: vec![changes] })).await?;
        let failed = match outcome {
            CommitOutcome::Applied => return Ok(answer),
            CommitOutcome::Conflict(_) => Problem::unavailable(
                "recording the Idempotency-Key failed: other requests keep changing the records; retry later",
            ),
            CommitOutcome::Unknown(error) => error.into(),
        };
        let Some(delay) = delays.next() else { return Err(failed.retry_after(1)) };
        sleep(delay).await;
    }
}

/// Prepares a hidden collection: a generation that no rebuild ever reaches, even if a read model
/// has this name.
async fn prepared<S: Documents>(store: &S) -> leftfold::Result<Collection> {
    let collection = Collection::new("requests")?.generation(u32::MAX);
    store.prepare(&collection).await?;
    Ok(collection)
}
