//! The invariants of folding, checked by code that shares nothing with the engine's fold.
//!
//! - I1: At every instant a document is the naive fold of its events up to its mark, except for
//!   events of a parked stream. In the end it is the fold of all its events.
//! - I2: Marks and checkpoints never decrease, and a folded event stays folded.
//! - I3: A checkpoint passes no event that its documents have neither folded nor parked.
//! - I6: An acknowledged event is in the log once, at the position of its bookmark.
//! - I8: A failing event stops only its own document or stream. Nothing else is left out, and
//!   everything becomes correct once the code is fixed.
//! - I10: Within a time limit after the last fault everything is folded and nothing is parked.
//! - I11: The responses that clients got are true.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use leftfold::documents::{Commit, Record};
use leftfold::log::Limit;
use leftfold::{
    Bookmark, Collection, DocumentId, Documents, Event, EventId, Json, Log, Mark, Partition, Position, Result,
};

use crate::notes::{BY_CONTENT, BY_STREAM, FoldedEvents};

/// Checks a run.
#[derive(Debug, Default)]
pub struct Checker {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    violations: Vec<String>,
    read_up_to: Mark,
    ids: HashMap<EventId, Json>,
    bookmarks: HashSet<Bookmark>,
    /// The events of each document in log order, by projection.
    routed: HashMap<(&'static str, DocumentId), Vec<Step>>,
    /// The log of each partition so far, with the documents that each event belongs to.
    passed: HashMap<(&'static str, Partition), Vec<Passed>>,
    documents: HashMap<(Collection, DocumentId), (Mark, Vec<String>)>,
    checkpoints: HashMap<Collection, Mark>,
}

/// An event from a document's point of view.
#[derive(Clone, Debug)]
struct Step {
    stream: String,
    name: String,
    partition: Partition,
    position: Position,
    clears: bool,
}

/// An event and the documents it belongs to.
type Passed = (Step, Vec<DocumentId>);

/// Parked streams, each with its first parked position.
type SetAside = BTreeMap<String, Position>;

/// Returns the documents that an event belongs to, read from its JSON by hand. Ignores types that
/// the projections do not handle.
fn documents_of(event: &Event, projection: &str) -> Vec<DocumentId> {
    if !matches!(event.kind.as_str(), "noted" | "cleared" | "poison" | "flaky") {
        return Vec::new();
    }
    let Ok(data) = serde_json::from_str::<serde_json::Value>(event.data.as_str()) else { return Vec::new() };
    let to = data.get("to").or_else(|| data.get("garbled")).and_then(serde_json::Value::as_array);
    let ids: BTreeSet<&str> = match projection {
        BY_STREAM => BTreeSet::from([event.stream.as_str()]),
        _ => to.into_iter().flatten().filter_map(serde_json::Value::as_str).collect(),
    };
    ids.into_iter().filter_map(|id| DocumentId::new(id).ok()).collect()
}

impl Checker {
    /// Records a violation.
    pub fn violated(&self, what: String) {
        self.state().violations.push(what);
    }

    /// Returns the violations so far.
    pub fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    /// Checks the result of a commit while nothing else runs, and returns the new violations.
    pub async fn look(&self, store: &(impl Log + Documents), commit: &Commit) -> Result<Vec<String>> {
        let before = self.state().violations.len();
        self.read_on(store).await?;
        for changes in &commit.changes {
            if !is_there(store, &changes.collection).await? {
                continue;
            }
            let ids = changes.writes.iter().map(|write| write.record.id.clone()).collect();
            let records = store.load_current(&changes.collection, ids).await?;
            let aside = set_aside(store, &changes.collection).await?;
            let mut state = self.state();
            for record in &records {
                state.see(&changes.collection, record);
                state.is_fold(&changes.collection, record, &aside);
            }
        }
        if let Some(advance) = &commit.advance
            && is_there(store, &advance.projection).await?
        {
            self.see_checkpoint(store, &advance.projection).await?;
        }
        Ok(self.state().violations[before..].to_vec())
    }

    /// Checks that a new live generation is as far as the previous one, so that no reader goes
    /// back. Without atomic commits it skips the documents. A worker may have written those of a
    /// batch whose checkpoint came too late.
    pub async fn switched(
        &self,
        store: &impl Documents,
        before: &Collection,
        after: &Collection,
        atomic: bool,
    ) -> Result<()> {
        let (was, is) = (store.checkpoint(before).await?.mark, store.checkpoint(after).await?.mark);
        if !is.covers(&folded(&was)) {
            self.violated(format!("I2: {before}, at {was}, is replaced by {after}, which is at {is}"));
        }
        for record in store.scan(before, None, usize::MAX).await?.iter().filter(|_| atomic) {
            let mark = folded(&record.header.mark);
            if !is.covers(&mark) {
                let id = &record.id;
                self.violated(format!("I2: {id} in {before} is at {mark}, and {after} is at {is}"));
            }
        }
        Ok(())
    }

    /// Checks everything stored while others are working, so it sees the data piece by piece.
    pub async fn survey(&self, store: &(impl Log + Documents)) -> Result<()> {
        for name in [BY_STREAM, BY_CONTENT] {
            let collection = Collection::new(name)?;
            let records = store.scan(&collection, None, usize::MAX).await?;
            self.read_on(store).await?;
            let mut state = self.state();
            for record in &records {
                state.see(&collection, record);
            }
        }
        Ok(())
    }

    /// Checks that a checkpoint never falls and passes no event that is unaccounted for.
    async fn see_checkpoint(&self, store: &(impl Log + Documents), projection: &Collection) -> Result<()> {
        let now = store.checkpoint(projection).await?.mark;
        let passed = self.state().pass(projection, &now);
        if passed.is_empty() {
            return Ok(());
        }
        let aside = set_aside_through(store, projection).await?;
        for (step, ids) in passed {
            if aside
                .get(&step.stream)
                .is_some_and(|(from, through)| (*from..=*through).contains(&step.position))
            {
                continue;
            }
            let records = store.load_current(projection, ids.clone()).await?;
            for id in ids {
                let header = records.iter().find(|record| record.id == id).map(|record| &record.header);
                let done = header.is_some_and(|header| {
                    let parked = header.parked.as_ref().map(|parked| parked.through.position(step.partition));
                    header.mark.position(step.partition) >= step.position || parked >= Some(step.position)
                });
                if !done {
                    let at = step.position;
                    self.violated(format!(
                        "I3: {projection} passed {} at {at}, which {id} has not",
                        step.name
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks the final state, after all repairs. Nothing is parked, every document is the naive
    /// fold of all its events, and the log has all acknowledged events.
    pub async fn finally(&self, store: &(impl Log + Documents), acknowledged: &[Bookmark]) -> Result<()> {
        self.read_on(store).await?;
        for name in [BY_STREAM, BY_CONTENT] {
            let collection = Collection::new(name)?;
            for parked in [collection.clone(), collection.streams()] {
                for record in store.parked(&parked, None, usize::MAX).await? {
                    self.violated(format!("I10: {} in {parked} is still parked", record.id));
                }
            }
            let heads = store.heads().await?;
            let at = store.checkpoint(&collection).await?.mark;
            if !at.covers(&heads) {
                self.violated(format!("I10: {name} stands at {at}, the log ends at {heads}"));
            }
            let records = store.scan(&collection, None, usize::MAX).await?;
            let mut state = self.state();
            let stored: HashMap<_, _> = records.iter().map(|record| (&record.id, listed(record))).collect();
            let ids = state.routed.keys().filter(|(projection, _)| *projection == name).map(|(_, id)| id);
            let ids: BTreeSet<_> = ids.chain(stored.keys().copied()).cloned().collect();
            for id in ids {
                let expected = state.naive(name, &id, &heads, &SetAside::new());
                let actual = stored.get(&id).cloned().unwrap_or_default();
                if !same(&expected, &actual, &heads) {
                    state
                        .violations
                        .push(format!("I1: {id} in {name} is {actual:?} and should be {expected:?}"));
                }
            }
        }
        let mut state = self.state();
        for bookmark in acknowledged {
            if !state.bookmarks.contains(bookmark) {
                state.violations.push(format!("I6: {bookmark} was acknowledged and is not in the log"));
            }
        }
        Ok(())
    }

    /// Returns whether an event with this id and content is in the log.
    pub async fn is_logged(&self, store: &impl Log, id: &EventId, data: &Json) -> Result<bool> {
        self.read_on(store).await?;
        Ok(self.state().ids.get(id) == Some(data))
    }

    /// Returns whether a document that has folded the event of a bookmark must list it. The event
    /// must belong to the document, and no event may clear it.
    pub async fn must_list(
        &self,
        store: &impl Log,
        projection: &'static str,
        document: &str,
        bookmark: &Bookmark,
    ) -> Result<bool> {
        self.read_on(store).await?;
        let (state, id) = (self.state(), DocumentId::new(document)?);
        let steps = state.routed.get(&(projection, id)).map(Vec::as_slice).unwrap_or_default();
        let own = name(&bookmark.stream, bookmark.revision);
        Ok(steps.iter().any(|step| step.name == own) && steps.iter().all(|step| !step.clears))
    }

    async fn read_on(&self, log: &impl Log) -> Result<()> {
        for partition in (0..log.partitions()).map(Partition) {
            let after = self.state().read_up_to.position(partition);
            let page = log.read(partition, after, Limit { events: usize::MAX, bytes: usize::MAX }).await?;
            let mut state = self.state();
            // Another task may have read the same events meanwhile.
            let after = state.read_up_to.position(partition);
            state.read_up_to.advance(&partition.into(), page.through.0);
            for event in page.events.into_iter().filter(|event| event.position > after) {
                state.learn(&event);
            }
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn learn(&mut self, event: &Event) {
        if self.ids.insert(event.id.clone(), event.data.clone()).is_some() {
            self.violations.push(format!("I6: event {} is in the log twice", event.id));
        }
        self.bookmarks.insert(event.bookmark());
        let step = Step {
            stream: event.stream.to_string(),
            name: name(&event.stream, event.revision),
            partition: event.partition,
            position: event.position,
            clears: event.kind.as_str() == "cleared",
        };
        for projection in [BY_STREAM, BY_CONTENT] {
            let ids = documents_of(event, projection);
            for id in &ids {
                self.routed.entry((projection, id.clone())).or_default().push(step.clone());
            }
            self.passed.entry((projection, event.partition)).or_default().push((step.clone(), ids));
        }
    }

    /// Returns the expected events of a document: the fold of its events up to a mark, without
    /// parked streams.
    fn naive(&self, projection: &'static str, id: &DocumentId, upto: &Mark, aside: &SetAside) -> Vec<String> {
        let mut listed = Vec::new();
        for step in self.routed.get(&(projection, id.clone())).into_iter().flatten() {
            let waits = aside.get(&step.stream).is_some_and(|from| step.position >= *from);
            if waits || step.position > upto.position(step.partition) {
                continue;
            }
            if step.clears {
                listed.clear();
            } else {
                listed.push(step.name.clone());
            }
        }
        listed
    }

    /// Checks that a document never loses an event it has folded.
    fn see(&mut self, collection: &Collection, record: &Record) {
        let (now, mark) = (listed(record), &record.header.mark);
        let key = (collection.stored(0), record.id.clone());
        let (before, had) = self.documents.insert(key, (mark.clone(), now.clone())).unwrap_or_default();
        if !mark.covers(&before) {
            self.violations
                .push(format!("I2: the mark of {} in {collection} fell from {before} to {mark}", record.id));
        }
        let Some(projection) = projection(collection) else { return };
        let steps = self.routed.get(&(projection, record.id.clone())).map(Vec::as_slice).unwrap_or_default();
        let cleared = steps.iter().rposition(|step| step.clears).unwrap_or(0);
        let kept: HashSet<_> = now.iter().collect();
        let lost = had
            .iter()
            .find(|name| !kept.contains(name) && !steps[..cleared].iter().any(|step| step.name == **name));
        if let Some(lost) = lost {
            self.violations
                .push(format!("I2: {} in {collection} had folded {lost} and no longer has", record.id));
        }
    }

    /// Checks that a document is the fold of its events up to its mark.
    ///
    /// Of a parked stream it may contain the first events or all: some worker could decode them, or
    /// the stream is being retried. A document that waits for a refold may lack the last events of
    /// each stream, but none before them.
    fn is_fold(&mut self, collection: &Collection, record: &Record, aside: &SetAside) {
        let Some(projection) = projection(collection) else { return };
        let (now, mark) = (listed(record), &record.header.mark);
        let expected = self.naive(projection, &record.id, mark, aside);
        if same(&expected, &now, &self.read_up_to) {
            return;
        }
        if record.header.parked.as_ref().is_some_and(|parked| parked.anew) {
            let steps =
                self.routed.get(&(projection, record.id.clone())).map(Vec::as_slice).unwrap_or_default();
            let all = by_stream(steps.iter().map(|step| &step.name));
            let begins = |(stream, names): (&str, Vec<&String>)| {
                all.get(stream).is_some_and(|all| all.starts_with(&names))
            };
            if steps.iter().any(|step| step.clears) || by_stream(&now).into_iter().all(begins) {
                return;
            }
        }
        if self
            .cuts(projection, &record.id, &now, aside)
            .iter()
            .any(|cut| same(&self.naive(projection, &record.id, mark, cut), &now, &self.read_up_to))
        {
            return;
        }
        let id = &record.id;
        self.violations
            .push(format!("I1: {id} in {collection} at {mark} is {now:?} and should be {expected:?}"));
    }

    /// Returns the possible ends of the events that a document contains of parked streams. Only
    /// some ends make a difference: where the stream is parked, or after an event that is listed
    /// last or cleared the document.
    fn cuts(
        &self,
        projection: &'static str,
        id: &DocumentId,
        now: &[String],
        aside: &SetAside,
    ) -> Vec<SetAside> {
        let steps = self.routed.get(&(projection, id.clone())).map(Vec::as_slice).unwrap_or_default();
        let mut cuts = vec![SetAside::new()];
        for (stream, from) in aside {
            let own = || steps.iter().filter(|step| step.stream == *stream && step.position >= *from);
            let last = own().rfind(|step| now.contains(&step.name));
            let ends = own().filter(|step| step.clears).chain(last).map(|step| Position(step.position.0 + 1));
            let ends: BTreeSet<_> = ends.chain([*from]).collect();
            let longer = cuts.iter().flat_map(|cut| {
                ends.iter().map(|end| {
                    let mut cut = cut.clone();
                    cut.insert(stream.clone(), *end);
                    cut
                })
            });
            cuts = longer.collect();
        }
        cuts
    }

    /// Advances a checkpoint and returns the events it passed.
    fn pass(&mut self, projection: &Collection, now: &Mark) -> Vec<Passed> {
        let now = &folded(now);
        let before = self.checkpoints.insert(projection.stored(0), now.clone()).unwrap_or_default();
        if !now.covers(&before) {
            self.violations.push(format!("I2: checkpoint of {projection} fell from {before} to {now}"));
        }
        let Some(name) = self::projection(projection) else { return Vec::new() };
        let lanes = now.lanes().filter_map(|(lane, end)| Some((lane.partition()?, Position(end))));
        let passed = lanes.flat_map(|(partition, end)| {
            let steps = self.passed.get(&(name, partition)).map(Vec::as_slice).unwrap_or_default();
            let begin = steps.partition_point(|(step, _)| step.position <= before.position(partition));
            steps[begin..].iter().take_while(move |(step, _)| step.position <= end)
        });
        passed.cloned().collect()
    }
}

/// Returns the name under which a document lists an event.
fn name(stream: &impl std::fmt::Display, revision: impl std::fmt::Display) -> String {
    format!("{stream}@{revision}")
}

/// Returns the projection that writes a collection of documents.
fn projection(collection: &Collection) -> Option<&'static str> {
    let base = collection.belongs_to().is_none().then(|| collection.base())?;
    [BY_STREAM, BY_CONTENT].into_iter().find(|name| base.as_str() == *name)
}

/// Returns whether a generation exists, that is, it is not being removed and has not been removed.
async fn is_there(store: &impl Documents, collection: &Collection) -> Result<bool> {
    let known = store.generations(&collection.base()).await?;
    let numbers = [Some(&known.live), known.building.as_ref(), known.kept.as_ref()];
    let mut all = numbers.into_iter().flatten().map(|one| collection.base().generation(one.number).stored(0));
    let generation = collection.belongs_to().unwrap_or(collection.as_str());
    let generation = Collection::from_stored(generation)?.stored(0);
    Ok(!collection.names_generation() || all.any(|one| one == generation))
}

/// Returns the part of a checkpoint's mark that says what is folded.
fn folded(mark: &Mark) -> Mark {
    let lanes = mark.lanes().filter(|(lane, _)| lane.partition().is_some());
    lanes.map(|(lane, number)| (lane.clone(), number)).collect()
}

fn listed(record: &Record) -> Vec<String> {
    record.body.as_ref().and_then(|body| body.to::<FoldedEvents>().ok()).unwrap_or_default().events
}

/// Returns whether two lists are the same. With several partitions only the order within each
/// stream counts.
fn same(expected: &[String], actual: &[String], log: &Mark) -> bool {
    if log.lanes().count() <= 1 {
        return expected == actual;
    }
    expected.len() == actual.len() && by_stream(expected) == by_stream(actual)
}

fn by_stream<'a>(names: impl IntoIterator<Item = &'a String>) -> BTreeMap<&'a str, Vec<&'a String>> {
    let mut streams: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for name in names {
        let stream = name.rsplit_once('@').map_or(name.as_str(), |(stream, _)| stream);
        streams.entry(stream).or_default().push(name);
    }
    streams
}

/// Returns the parked streams of a projection, each with its first and last parked position.
async fn set_aside_through(
    store: &impl Documents,
    projection: &Collection,
) -> Result<BTreeMap<String, (Position, Position)>> {
    let rows = store.parked(&projection.streams(), None, usize::MAX).await?;
    let rows = rows.into_iter().filter_map(|row| Some((row.id.to_string(), row.header.parked?)));
    Ok(rows
        .map(|(stream, parked)| (stream, (parked.position, parked.through.position(parked.partition))))
        .collect())
}

async fn set_aside(store: &impl Documents, projection: &Collection) -> Result<SetAside> {
    if projection.base().as_str() != BY_CONTENT {
        return Ok(SetAside::new());
    }
    let rows = set_aside_through(store, projection).await?;
    Ok(rows.into_iter().map(|(stream, (from, _))| (stream, from)).collect())
}
