//! Appending: the appends of concurrent callers to a partition share a transaction.
//!
//! One task per partition takes all queued requests, assigns revisions and positions, and writes
//! the head and all events in one transaction. It does not check first whether an event exists: the
//! unique indexes report that, and only then the task reads. The task caches the last revision of
//! each stream. Streams only grow, so a cached revision that is too low collides with a stored one.
//!
//! That does not hold for streams that skip revisions: the revision after a stale one may be free,
//! yet lie before stored ones. The head records whether its partition has such streams. If it does,
//! the transaction reads their last revisions before it writes.
//!
//! To resolve an unknown outcome, the task writes the same events again. That write fails if they
//! are stored, and waits for the head if their transaction is still open.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bson::{Document, RawDocumentBuf, doc};
use leftfold::log::{Entry, judge_append};
use leftfold::{
    AppendError, Appended, Backoff, Bookmark, Env as _, Error, Event, Expected, Kind, Mark, Partition,
    Position, Revision, StreamId, System,
};
use mongodb::ClientSession;
use mongodb::options::ReturnDocument;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};

use crate::connection::transaction::{Ended, Step, Work};
use crate::error::{Failure, is_duplicate};
use crate::log::{encode, has_room, place_of};
use crate::schema::{EVENTS, HEADS};
use crate::{Base, patiently};

/// The number of appends that may queue before callers have to wait.
const QUEUE: usize = 1_024;
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
const PATIENCE: Duration = Duration::from_secs(15);

const DOING: &str = "append to the log in";

/// The tasks that append, one per partition. Each starts on first use.
pub(crate) struct Appenders(Vec<Mutex<Option<mpsc::Sender<Request>>>>);

struct Request {
    stream: StreamId,
    expected: Expected,
    entries: Vec<Entry>,
    answer: oneshot::Sender<Result<Appended, AppendError>>,
    /// `true` if a transaction with this request had an unknown outcome.
    unsure: bool,
}

impl Appenders {
    pub(crate) fn new(partitions: u16) -> Self {
        Self((0..partitions).map(|_| Mutex::default()).collect())
    }

    pub(crate) async fn append(
        &self,
        base: &Arc<Base>,
        partition: Partition,
        stream: StreamId,
        expected: Expected,
        entries: Vec<Entry>,
    ) -> Result<Appended, AppendError> {
        let (answer, answered) = oneshot::channel();
        let request = Request { stream, expected, entries, answer, unsure: false };
        let stopped = || {
            let message = format!("could not {DOING} {}: the program is stopping", base.place);
            AppendError::from(Error::new(Kind::Stopped, message))
        };
        self.queue(base, partition).send(request).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }

    fn queue(&self, base: &Arc<Base>, partition: Partition) -> mpsc::Sender<Request> {
        let mut queue = self.0[usize::from(partition.0)].lock().unwrap_or_else(PoisonError::into_inner);
        match &*queue {
            Some(queue) if !queue.is_closed() => queue.clone(),
            _ => {
                let (sender, requests) = mpsc::channel(QUEUE);
                let appender = Appender {
                    base: Arc::clone(base),
                    partition,
                    revisions: HashMap::new(),
                    only_new: false,
                };
                tokio::spawn(appender.run(requests));
                queue.insert(sender).clone()
            }
        }
    }
}

struct Appender {
    base: Arc<Base>,
    partition: Partition,
    /// The last revision seen of each stream. Streams may have grown since.
    revisions: HashMap<StreamId, i64>,
    /// `true` if all recently unknown streams turned out to be new. The appender then assumes the
    /// next unknown stream is new too. If it exists, its first revision is taken, and the insert
    /// fails.
    only_new: bool,
}

/// The requests of one transaction.
struct Group {
    requests: Vec<Request>,
    /// The revision of the first event of each request.
    first: Vec<i64>,
    events: i64,
}

enum Wrote {
    /// All events are stored; the number is the position of the last one.
    All(i64),
    /// An event id or a revision is already taken.
    Taken,
}

impl Appender {
    async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
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
            let (group, later) = self.group(waiting);
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
                    if begun.elapsed() > PATIENCE {
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
            if begun.elapsed() > PATIENCE {
                let failure =
                    Failure::new(Kind::Contended, "try again", "others keep appending to the same streams");
                return self.fail(waiting, &failure);
            }
            sleep(delays.next().unwrap_or_default()).await;
        }
    }

    /// Answers the requests that need no write: duplicates, and requests that expect another
    /// revision.
    async fn judge(&mut self, waiting: &mut Vec<Request>, look: bool) -> Result<(), Failure> {
        let mut seen = HashSet::new();
        let unknown = waiting.iter().map(|request| &request.stream);
        let unknown = unknown.filter(|stream| !look && !self.revisions.contains_key(*stream));
        let unknown: Vec<_> = unknown.filter(|stream| seen.insert(*stream)).cloned().collect();
        if self.only_new {
            self.revisions.extend(unknown.into_iter().map(|stream| (stream, 0)));
        } else if !unknown.is_empty() {
            patiently(self.learn(unknown.clone())).await?;
            self.only_new = unknown.iter().all(|stream| self.is_at(stream, Revision(0)));
        }
        let suspect = |request: &Request| match request.expected {
            _ if look || request.unsure => true,
            Expected::Any => false,
            Expected::Revision(expected) => !self.is_at(&request.stream, expected),
        };
        let (suspects, others): (Vec<_>, Vec<_>) = std::mem::take(waiting).into_iter().partition(suspect);
        *waiting = others;
        if suspects.is_empty() {
            return Ok(());
        }
        // A read that is behind must neither refuse a request nor cause an event to be written
        // twice.
        if let Err(failure) = patiently(self.base.catch_up()).await {
            self.fail(suspects, &failure);
            return Ok(());
        }
        // Read the events before the revisions: then no event found lies beyond the revision
        // learned for its stream.
        let ids = suspects.iter().flat_map(|request| &request.entries).map(|entry| entry.id.as_str());
        let stored = patiently(self.stored(ids.collect())).await;
        let streams: HashSet<_> = suspects.iter().map(|request| request.stream.clone()).collect();
        let learned = patiently(self.learn(streams.into_iter().collect())).await;
        let mut welcome = Vec::new();
        let stored = match (stored, learned) {
            (Ok(stored), Ok(())) => stored,
            (Err(failure), _) | (_, Err(failure)) => {
                self.fail(suspects, &failure);
                return Ok(());
            }
        };
        for request in suspects {
            let found: Vec<_> =
                request.entries.iter().map(|entry| stored.get(entry.id.as_str()).cloned()).collect();
            let current = self.revisions.get(&request.stream).copied().unwrap_or(0).unsigned_abs();
            let judged =
                judge_append(&request.stream, request.expected, &request.entries, &found, Revision(current));
            let answer = match judged {
                Ok(None) => {
                    welcome.push(request);
                    continue;
                }
                // An earlier attempt of this request wrote it.
                Ok(Some(bookmark)) if request.unsure => Ok(Appended::New(bookmark)),
                Ok(Some(bookmark)) => Ok(Appended::Duplicate(bookmark)),
                Err(error) => Err(error),
            };
            // The caller may have stopped waiting.
            let _ = request.answer.send(answer);
        }
        waiting.splice(0..0, welcome);
        Ok(())
    }

    fn is_at(&self, stream: &StreamId, revision: Revision) -> bool {
        self.revisions.get(stream).is_some_and(|known| known.unsigned_abs() == revision.0)
    }

    /// Splits the requests into a group to write now and the ones to write later. A request waits
    /// if its expected revision does not match yet, or if the group already has one of its events.
    fn group(&self, waiting: Vec<Request>) -> (Group, Vec<Request>) {
        let mut group = Group { requests: Vec::new(), first: Vec::new(), events: 0 };
        let mut later = Vec::new();
        let mut revisions: HashMap<StreamId, i64> = HashMap::new();
        let mut ids = HashSet::new();
        for request in waiting {
            let known = self.revisions.get(&request.stream).copied().unwrap_or(0);
            let current = revisions.get(&request.stream).copied().unwrap_or(known);
            let is_at = match request.expected {
                Expected::Any => true,
                Expected::Revision(expected) => expected.0 == current.unsigned_abs(),
            };
            let is_twin = request.entries.iter().any(|entry| ids.contains(&entry.id));
            // A request must not overtake an earlier one to the same stream.
            let overtakes = later.iter().any(|other: &Request| other.stream == request.stream);
            if !is_at || is_twin || overtakes {
                later.push(request);
                continue;
            }
            ids.extend(request.entries.iter().map(|entry| entry.id.clone()));
            let count = i64::try_from(request.entries.len()).unwrap_or(i64::MAX);
            revisions.insert(request.stream.clone(), current + count);
            group.first.push(current + 1);
            group.events += count;
            group.requests.push(request);
        }
        (group, later)
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

    fn fail(&mut self, requests: Vec<Request>, failure: &Failure) {
        for request in requests {
            self.revisions.remove(&request.stream);
            let failure = if request.unsure { failure.clone().unknown() } else { failure.clone() };
            let error = failure.to_error(DOING, &self.base.place);
            let _ = request.answer.send(Err(AppendError::Store(error)));
        }
    }

    /// Reads the last revisions of streams, in one query.
    async fn learn(&mut self, streams: Vec<StreamId>) -> Result<(), Failure> {
        if streams.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = streams.iter().map(StreamId::as_str).collect();
        let last = self.base.last_revisions(&names).await?;
        self.revisions.extend(streams.into_iter().map(|stream| (stream, 0)));
        self.revisions.extend(last);
        Ok(())
    }

    /// Returns the stored events with these ids.
    async fn stored(&self, ids: Vec<&str>) -> Result<HashMap<String, Event>, Failure> {
        let found = self.base.events_with(ids).await?;
        Ok(found.into_iter().map(|event| (event.id.to_string(), event)).collect())
    }
}

struct Insert<'a> {
    base: &'a Base,
    partition: Partition,
    group: &'a Group,
}

impl Work for Insert<'_> {
    type Answer = Wrote;

    async fn run(&self, session: &mut ClientSession) -> Result<Step<Wrote>, Failure> {
        let Self { base, partition, group } = *self;
        let heads = base.db.collection::<Document>(HEADS);
        let head = heads
            .find_one_and_update(
                doc! { "_id": i32::from(partition.0) },
                doc! { "$inc": { "position": group.events } },
            )
            .return_document(ReturnDocument::After)
            .session(&mut *session)
            .await?;
        let damaged = || Failure::damaged(format!("partition {partition} has no head"));
        let head = head.ok_or_else(damaged)?;
        let last = head.get_i64("position").map_err(|_| damaged())?;
        if !has_room(last) {
            return Err(Failure::new(
                Kind::Full,
                "append to another log",
                "the partition has no positions left",
            ));
        }
        point!("head-moved");
        if head.get_bool("gaps").unwrap_or(false) && !self.is_last(session).await? {
            return Ok(Step::CallOff(Wrote::Taken));
        }
        let mut place = place_of(partition, last - group.events);
        let mut events = Vec::with_capacity(usize::try_from(group.events).unwrap_or(0));
        for (request, first) in group.requests.iter().zip(&group.first) {
            for (entry, revision) in request.entries.iter().zip(*first..) {
                place += 1;
                events.push(encode(place, &request.stream, revision, entry));
            }
        }
        let inserted =
            base.db.collection::<RawDocumentBuf>(EVENTS).insert_many(events).session(session).await;
        match inserted {
            Ok(_) => {
                point!("events-inserted");
                Ok(Step::Keep(Wrote::All(last)))
            }
            Err(error) if is_duplicate(&error) => Ok(Step::CallOff(Wrote::Taken)),
            Err(error) => Err(error.into()),
        }
    }
}

impl Insert<'_> {
    /// Returns whether each stream is at the revision that its first request assumes.
    async fn is_last(&self, session: &mut ClientSession) -> Result<bool, Failure> {
        let mut believed: HashMap<&StreamId, i64> = HashMap::new();
        for (request, first) in self.group.requests.iter().zip(&self.group.first) {
            believed.entry(&request.stream).or_insert(first - 1);
        }
        let streams: Vec<_> = believed.keys().map(|stream| stream.as_str()).collect();
        let last = self.base.last_revisions_in(session, &streams).await?;
        Ok(believed.into_iter().all(|(stream, at)| last.get(stream).copied().unwrap_or(0) == at))
    }
}

/// Returns the number of events and of bytes of an append.
fn size(request: &Request) -> (usize, usize) {
    let bytes = |entry: &Entry| {
        entry.data.as_str().len()
            + entry.metadata.as_ref().map_or(0, |metadata| metadata.as_str().len())
            + 256
    };
    (request.entries.len(), request.entries.iter().map(bytes).sum())
}
