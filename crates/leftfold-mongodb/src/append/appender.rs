//! The task that appends to a partition.
//!
//! It takes all queued requests, assigns revisions and positions, and writes the head and all
//! events in one transaction. It does not check first whether an event exists: the unique indexes
//! report that, and only then the task reads. The task caches the last revision of each stream.
//! Streams only grow, so a cached revision that is too low collides with a stored one.
//!
//! To resolve an unknown outcome, the task writes the same events again. That write fails if they
//! are stored, and waits for the head if their transaction is still open.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leftfold::{
    AppendError, Appended, Backoff, Bookmark, Env as _, Kind, Mark, Partition, Position, Revision, StreamId,
    System,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

use super::DOING;
use super::group::Group;
use super::queue::{Request, size};
use super::write::{Insert, Wrote};
use crate::connection::{Base, Ended};
use crate::error::Failure;

/// The largest group in one transaction, unless a single append is larger.
const GROUP_EVENTS: usize = 5_000;
const GROUP_BYTES: usize = 4 << 20;
/// The longest time that a transaction waits for more callers.
const GATHER: Duration = Duration::from_millis(2);
/// The number of missing callers that is not worth waiting for.
const FEW: usize = 4;
/// The number of cached revisions.
const REMEMBERED: usize = 100_000;
/// The time within which an append is retried after conflicts or unknown outcomes.
const MAX_RETRY_TIME: Duration = Duration::from_secs(15);

/// The task that appends to a partition.
pub(super) struct Appender {
    pub(super) base: Arc<Base>,
    partition: Partition,
    /// The last revision seen of each stream. Streams may have grown since.
    pub(super) revisions: HashMap<StreamId, i64>,
    /// `true` if all recently unknown streams turned out to be new. The appender then assumes the
    /// next unknown stream is new too. If it exists, its first revision is taken, and the insert
    /// fails.
    pub(super) only_new: bool,
}

impl Appender {
    pub(super) fn new(base: Arc<Base>, partition: Partition) -> Self {
        Self { base, partition, revisions: HashMap::new(), only_new: false }
    }

    /// Serves requests until the last sender is dropped.
    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let (mut last_count, mut last_took) = (0, Duration::ZERO);
        while let Some(first) = requests.recv().await {
            let begun = Instant::now();
            // Callers that were just answered tend to come back at once. Waiting for as many
            // callers as last time, for less than half a transaction's duration, saves a
            // transaction.
            let patience = begun + GATHER.min(last_took / 2);
            let mut waiting = vec![first];
            let (mut events, mut bytes) = size(&waiting[0]);
            while events < GROUP_EVENTS && bytes < GROUP_BYTES {
                let next = match requests.try_recv() {
                    Ok(next) => Some(next),
                    Err(_) if waiting.len() + FEW >= last_count => None,
                    Err(_) => timeout_at(patience, requests.recv()).await.ok().flatten(),
                };
                let Some(next) = next else { break };
                let (more, larger) = size(&next);
                (events, bytes) = (events + more, bytes + larger);
                waiting.push(next);
            }
            if self.revisions.len() > REMEMBERED {
                self.revisions.clear();
            }
            last_count = waiting.len();
            self.append(waiting).await;
            last_took = begun.elapsed();
        }
    }

    /// Answers all of these requests.
    async fn append(&mut self, mut waiting: Vec<Request>) {
        let begun = Instant::now();
        let backoff = Backoff::default().first(Duration::from_millis(1)).most(Duration::from_millis(100));
        let mut delays = backoff.without_limit().delays(System.random());
        // Set after a conflict or an unknown outcome: read the stored state before writing.
        let mut look = false;
        while !waiting.is_empty() {
            if let Err(failure) = self.judge(&mut waiting, look).await {
                return self.fail(waiting, &failure);
            }
            let (group, later) = Group::of(waiting, &self.revisions);
            waiting = later;
            if group.requests.is_empty() {
                continue;
            }
            match self.write(&group).await {
                Ok(Ended::Committed(Wrote::All(last))) => {
                    self.answer(group, last);
                    look = false;
                    continue;
                }
                Ok(Ended::Committed(Wrote::Taken) | Ended::CalledOff(_)) => {
                    waiting.splice(0..0, group.requests)
                }
                Ok(Ended::Unknown(failure)) => {
                    let unsure =
                        group.requests.into_iter().map(|request| Request { unsure: true, ..request });
                    if begun.elapsed() > MAX_RETRY_TIME {
                        self.fail(unsure.collect(), &failure);
                        continue;
                    }
                    waiting.splice(0..0, unsure.collect::<Vec<_>>())
                }
                Err(failure) => {
                    self.fail(group.requests, &failure);
                    continue;
                }
            };
            look = true;
            self.only_new = false;
            if begun.elapsed() > MAX_RETRY_TIME {
                let failure = Failure::new(
                    Kind::Contended,
                    "try again",
                    "other writers keep appending to the same streams",
                );
                return self.fail(waiting, &failure);
            }
            sleep(delays.next().unwrap_or_default()).await;
        }
    }

    /// Advances the head and inserts the events, in one transaction.
    async fn write(&self, group: &Group) -> Result<Ended<Wrote>, Failure> {
        point!("append");
        let _turn = self.base.turn(self.partition).await;
        self.base.transact(Insert { base: &self.base, partition: self.partition, group }).await
    }

    /// Tells each caller the position of its events.
    fn answer(&mut self, group: Group, last: i64) {
        let mut position = (last - group.events).unsigned_abs();
        for (request, first) in group.requests.into_iter().zip(group.first) {
            let count = request.entries.len() as u64;
            let revision = first.unsigned_abs() + count - 1;
            position += count;
            self.revisions.insert(request.stream.clone(), i64::try_from(revision).unwrap_or(i64::MAX));
            let bookmark = Bookmark {
                stream: request.stream,
                revision: Revision(revision),
                partition: self.partition,
                position: Position(position),
            };
            // The caller may have stopped waiting.
            let _ = request.answer.send(Ok(Appended::New(bookmark)));
        }
        let head: Mark = [(self.partition.into(), last.unsigned_abs())].into_iter().collect();
        self.base.board.grew(&head);
    }

    pub(super) fn fail(&mut self, requests: Vec<Request>, failure: &Failure) {
        for request in requests {
            self.revisions.remove(&request.stream);
            let failure = if request.unsure { failure.clone().unknown() } else { failure.clone() };
            let error = failure.to_error(DOING, &self.base.place);
            let _ = request.answer.send(Err(AppendError::Store(error)));
        }
    }
}
