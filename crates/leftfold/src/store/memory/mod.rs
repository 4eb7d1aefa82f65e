//! A store in memory: the reference for all others, and the store of most tests.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::documents::{
    Checkpoint, Claim, Collection, Commit, CommitConflict, CommitOutcome, DocumentCounts, Documents,
    Generations, Header, Record,
};
use crate::error::{Error, Kind, Result};
use crate::event::{Bookmark, DocumentId, Event, EventId, Partition, Position, Revision, StreamId};
use crate::inspect::doctor::{self, Area, Examine, Finding};
use crate::json::Json;
use crate::log::{Append, AppendError, Appended, Entry, Expected, Limit, Log, LogPage, judge_append};
use crate::mark::Mark;
use crate::react::DocumentSource;

mod contents;
mod counters;
mod reactive;
mod sequence;

/// A log and documents that live as long as the last handle to them.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Waiters are woken in the order in which they came: simulations depend on that.
    changed: Notify,
}

/// The records of a collection, by id.
type Kept = BTreeMap<DocumentId, (Header, Option<Json>)>;

#[derive(Debug, Default)]
struct State {
    partitions: Vec<Vec<Event>>,
    streams: HashMap<StreamId, Vec<(Revision, Position)>>,
    ids: HashMap<EventId, (Partition, Position)>,
    collections: HashMap<Collection, Kept>,
    checkpoints: HashMap<Collection, Checkpoint>,
    leases: HashMap<Collection, (String, Instant)>,
    generations: HashMap<Collection, Generations>,
    sequences: sequence::Kept,
    counters: counters::Kept,
    reacting: reactive::Kept,
    contents: contents::Kept,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(1)
    }
}

impl Memory {
    /// Creates an empty store whose log has this many partitions; at least one.
    pub fn new(partitions: u16) -> Self {
        let state = State { partitions: vec![Vec::new(); partitions.max(1).into()], ..State::default() };
        Self(Arc::new(Shared { state: Mutex::new(state), changed: Notify::new() }))
    }

    /// Locks the state. A panic elsewhere can't leave it half-changed, because nothing below panics
    /// while it changes it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn until<T>(&self, wanted: impl Fn(&State) -> Option<T> + Send) -> Result<T> {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            // From here on no change is missed, not even one between the check and the wait.
            changed.as_mut().enable();
            if let Some(found) = wanted(&self.state()) {
                return Ok(found);
            }
            changed.await;
        }
    }
}

impl Examine for Memory {
    async fn examine(&self) -> Result<Vec<Finding>> {
        let advice = "use it for tests only; otherwise open a file or a database";
        let mut findings = vec![Finding::notice(
            Area::Store,
            "memory",
            "the data is in memory and is lost when the process ends",
            advice,
        )];
        findings.extend(doctor::reactions(self).await);
        Ok(findings)
    }

    async fn collections(&self) -> Result<Vec<Collection>> {
        let state = self.state();
        let recorded = state.generations.iter().filter(|(_, known)| known.revision > 0);
        let mut names: Vec<_> = recorded.map(|(name, _)| name.clone()).collect();
        names.sort();
        Ok(names)
    }

    async fn probe(&self) -> Result<()> {
        Ok(())
    }
}

impl State {
    fn count(&self) -> u16 {
        u16::try_from(self.partitions.len()).unwrap_or(u16::MAX)
    }

    fn event(&self, partition: Partition, position: Position) -> Option<&Event> {
        let at = usize::try_from(position.0).ok()?.checked_sub(1)?;
        self.partitions.get(usize::from(partition.0))?.get(at)
    }

    fn heads(&self) -> Mark {
        let numbered = self.partitions.iter().zip(0..);
        numbered.map(|(events, partition)| (Partition(partition).into(), events.len() as u64)).collect()
    }

    /// Returns a stream's last revision.
    fn last(&self, stream: &StreamId) -> Revision {
        self.streams.get(stream).and_then(|places| places.last()).map_or(Revision(0), |(last, _)| *last)
    }

    /// Appends an event to the log.
    fn push(
        &mut self,
        partition: Partition,
        stream: &StreamId,
        revision: Revision,
        entry: Entry,
    ) -> Position {
        let events = &mut self.partitions[usize::from(partition.0)];
        let position = Position(events.len() as u64 + 1);
        self.ids.insert(entry.id.clone(), (partition, position));
        self.streams.entry(stream.clone()).or_default().push((revision, position));
        let Entry { id, kind, time, data, metadata } = entry;
        events.push(Event {
            id,
            stream: stream.clone(),
            revision,
            kind,
            time,
            data,
            metadata,
            partition,
            position,
        });
        position
    }

    /// Returns the name under which a collection's records are stored.
    fn stored(&self, collection: &Collection) -> Collection {
        collection.stored(self.generations.get(&collection.base()).map_or(0, |known| known.live.number))
    }

    fn collection(&self, collection: &Collection) -> Result<&Kept> {
        self.collections.get(&self.stored(collection)).ok_or_else(|| missing(collection))
    }

    fn checkpoint(&self, projection: &Collection) -> Option<&Checkpoint> {
        self.checkpoints.get(&self.stored(projection))
    }
}

fn missing(collection: &Collection) -> Error {
    Error::new(Kind::Store, format!("collection {collection} does not exist; prepare it first"))
}

fn record(id: &DocumentId, (header, body): &(Header, Option<Json>)) -> Record {
    Record { id: id.clone(), header: header.clone(), body: body.clone() }
}

/// Returns as many events as the limit allows, and whether the limit ended them.
fn cut<'a>(events: impl Iterator<Item = &'a Event>, limit: Limit) -> (Vec<Event>, bool) {
    let (mut page, mut bytes) = (Vec::new(), 0);
    for event in events {
        bytes += event.data.as_str().len() + event.metadata.as_ref().map_or(0, |json| json.as_str().len());
        if !page.is_empty() && (page.len() >= limit.events || bytes > limit.bytes) {
            return (page, true);
        }
        page.push(event.clone());
    }
    (page, false)
}

impl Log for Memory {
    fn partitions(&self) -> u16 {
        self.state().count()
    }

    async fn heads(&self) -> Result<Mark> {
        Ok(self.state().heads())
    }

    async fn read(&self, partition: Partition, after: Position, limit: Limit) -> Result<LogPage> {
        let state = self.state();
        let events = state.partitions.get(usize::from(partition.0)).map_or(&[][..], Vec::as_slice);
        let from = usize::try_from(after.0).unwrap_or(usize::MAX).min(events.len());
        let (events, more) = cut(events[from..].iter(), limit);
        let through = events.last().map_or(after, |event| event.position);
        Ok(LogPage { events, through, more })
    }

    async fn read_stream(&self, stream: &StreamId, after: Revision, limit: Limit) -> Result<Vec<Event>> {
        let state = self.state();
        let partition = Partition::of(stream, state.count());
        let places = state.streams.get(stream).map_or(&[][..], Vec::as_slice);
        let from = places.partition_point(|(revision, _)| *revision <= after);
        let events = places[from..].iter().filter_map(|(_, position)| state.event(partition, *position));
        Ok(cut(events, limit).0)
    }

    async fn grown(&self, beyond: &Mark) -> Result<()> {
        self.until(|state| (!beyond.covers(&state.heads())).then_some(())).await
    }
}

impl Append for Memory {
    async fn append(
        &self,
        stream: StreamId,
        expected: Expected,
        entries: Vec<Entry>,
    ) -> Result<Appended, AppendError> {
        crate::log::check_entries(&entries, crate::log::MAX_EVENT_BYTES)?;
        let bookmark = {
            let mut state = self.state();
            let stored: Vec<_> = entries
                .iter()
                .map(|entry| state.ids.get(&entry.id).and_then(|(p, at)| state.event(*p, *at)).cloned())
                .collect();
            let mut revision = state.last(&stream);
            if let Some(bookmark) = judge_append(&stream, expected, &entries, &stored, revision)? {
                return Ok(Appended::Duplicate(bookmark));
            }
            let partition = Partition::of(&stream, state.count());
            let mut position = Position(0);
            for entry in entries {
                revision.0 += 1;
                position = state.push(partition, &stream, revision, entry);
            }
            Bookmark { stream, revision, partition, position }
        };
        self.0.changed.notify_waiters();
        Ok(Appended::New(bookmark))
    }
}

impl Documents for Memory {
    async fn prepare(&self, collection: &Collection) -> Result<()> {
        let mut state = self.state();
        let stored = state.stored(collection);
        state.collections.entry(stored.streams()).or_default();
        state.collections.entry(stored).or_default();
        Ok(())
    }

    async fn load(&self, collection: &Collection, ids: Vec<DocumentId>) -> Result<Vec<Record>> {
        let state = self.state();
        let documents = state.collection(collection)?;
        Ok(ids.iter().filter_map(|id| Some(record(id, documents.get(id)?))).collect())
    }

    async fn commit(&self, commit: Arc<Commit>) -> Result<CommitOutcome> {
        {
            let mut state = self.state();
            if let Some(advance) = &commit.advance {
                let at = state.checkpoint(&advance.projection).map(|at| at.mark.clone()).unwrap_or_default();
                if !advance.holds(&at) {
                    return Ok(CommitOutcome::Conflict(CommitConflict {
                        checkpoint: true,
                        documents: Vec::new(),
                    }));
                }
            }
            let mut conflict = CommitConflict::default();
            for changes in &commit.changes {
                let documents = state.collection(&changes.collection)?;
                for write in &changes.writes {
                    if !write.holds(documents.get(&write.record.id).map(|(header, _)| header)) {
                        conflict.documents.push((changes.collection.clone(), write.record.id.clone()));
                    }
                }
            }
            if !conflict.documents.is_empty() {
                return Ok(CommitOutcome::Conflict(conflict));
            }
            for changes in &commit.changes {
                let stored = state.stored(&changes.collection);
                let base = changes.collection.base();
                let is_live = stored == state.stored(&base);
                let documents = state.collections.entry(stored).or_default();
                for Record { id, header, body } in changes.writes.iter().map(|write| &write.record) {
                    documents.insert(id.clone(), (header.clone(), body.clone()));
                }
                for write in changes.writes.iter().filter(|_| is_live) {
                    state.reacting.wrote(DocumentSource::Projection(base.clone()), &write.record.id);
                }
            }
            if let Some(advance) = &commit.advance {
                let projection = state.stored(&advance.projection);
                state.checkpoints.insert(projection, advance.to.clone());
            }
        }
        self.0.changed.notify_waiters();
        Ok(CommitOutcome::Applied)
    }

    async fn scan(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> Result<Vec<Record>> {
        self.list(collection, after, limit, |(_, body)| body.is_some())
    }

    async fn scan_page(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
        bytes: usize,
    ) -> Result<(Vec<Record>, bool)> {
        let state = self.state();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut page, mut left) = (Vec::new(), bytes);
        for (id, kept) in state.collection(collection)?.range((from, Bound::Unbounded)) {
            if kept.1.is_none() {
                continue;
            }
            let record = record(id, kept);
            if page.len() == limit || !record.fits(page.is_empty(), &mut left) {
                return Ok((page, true));
            }
            page.push(record);
        }
        Ok((page, false))
    }

    async fn parked(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
    ) -> Result<Vec<Record>> {
        self.list(collection, after, limit, |(header, _)| header.parked.is_some())
    }

    async fn count(&self, collection: &Collection) -> Result<DocumentCounts> {
        let state = self.state();
        let mut counts = DocumentCounts::default();
        for (header, body) in state.collection(collection)?.values() {
            counts.documents += u64::from(body.is_some());
            if let Some(parked) = &header.parked {
                counts.parked += 1;
                counts.parked_since = counts.parked_since.into_iter().chain([parked.since]).min();
            }
        }
        Ok(counts)
    }

    async fn checkpoint(&self, projection: &Collection) -> Result<Checkpoint> {
        Ok(self.state().checkpoint(projection).cloned().unwrap_or_default())
    }

    async fn advanced(&self, projection: &Collection, from: &Mark) -> Result<Mark> {
        self.until(|state| {
            let at = state.checkpoint(projection).map_or_else(Mark::default, |at| at.mark.clone());
            (at != *from).then_some(at)
        })
        .await
    }

    async fn claim(&self, projection: &Collection, owner: &str, lease: Duration) -> Result<Claim> {
        let now = Instant::now();
        let mut state = self.state();
        let projection = state.stored(projection);
        let taken = state.leases.get(&projection);
        let taken = taken.map(|(other, ends)| (other.as_str(), ends.saturating_duration_since(now)));
        let claim = Claim::judge(taken, owner);
        if claim == Claim::Ours {
            // Clocks can't represent times that are too far in the future.
            let ends = now + lease.min(Duration::from_hours(24 * 365));
            state.leases.insert(projection, (owner.to_owned(), ends));
        }
        Ok(claim)
    }

    async fn release(&self, projection: &Collection, owner: &str) -> Result<()> {
        let mut state = self.state();
        let projection = state.stored(projection);
        if state.leases.get(&projection).is_some_and(|(other, _)| other == owner) {
            state.leases.remove(&projection);
        }
        Ok(())
    }

    async fn generations(&self, collection: &Collection) -> Result<Generations> {
        Ok(self.state().generations.get(&collection.base()).cloned().unwrap_or_default())
    }

    async fn put_generations(&self, collection: &Collection, seen: u64, next: Generations) -> Result<bool> {
        {
            let mut state = self.state();
            let known = state.generations.entry(collection.base()).or_default();
            if known.revision != seen {
                return Ok(false);
            }
            let is_switched = known.live.number != next.live.number;
            *known = next;
            if is_switched {
                state.reacting.lost(DocumentSource::Projection(collection.base()));
            }
        }
        self.0.changed.notify_waiters();
        Ok(true)
    }

    async fn drop_generation(&self, generation: &Collection) -> Result<()> {
        let mut state = self.state();
        let stored = state.stored(generation);
        state.collections.remove(&stored.streams());
        state.collections.remove(&stored);
        state.checkpoints.remove(&stored);
        state.leases.remove(&stored);
        Ok(())
    }
}

impl Memory {
    fn list(
        &self,
        collection: &Collection,
        after: Option<DocumentId>,
        limit: usize,
        wanted: impl Fn(&(Header, Option<Json>)) -> bool,
    ) -> Result<Vec<Record>> {
        let state = self.state();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let documents = state.collection(collection)?.range((from, Bound::Unbounded));
        Ok(documents
            .filter(|(_, kept)| wanted(kept))
            .map(|(id, kept)| record(id, kept))
            .take(limit)
            .collect())
    }
}
