//! Whether what is stored is what the log folds to. Folds plainly, without the caches, guards and batches of the projector.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::Serialize;
use serde_json::Value;

use super::Projection;
use super::batch::{Folder, Routed, Step};
use super::changes::{Change, Changes};
use super::replay::Replay;
use crate::documents::{Record, Store};
use crate::env::Env;
use crate::error::{Invalid, Result};
use crate::event::{DocumentId, Event, Position, Revision, StreamId};
use crate::json::Json;
use crate::mark::Mark;

/// Which documents are verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// All, also those that should be there and are not: by reading the log once for each hundred thousand documents.
    All,
    /// So many, drawn by chance from those that readers see.
    Some(usize),
}

/// What a verification came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Documents that were folded anew and compared with what is stored.
    pub checked: u64,
    /// Those that are not what their events fold to.
    pub differing: u64,
    /// Those that were left out as they are parked, or have events of a parked stream.
    pub parked: u64,
    /// Those that changed whenever they were looked at, so that nothing can be said.
    pub moving: u64,
}

/// A document that is not what its events fold to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Differing {
    /// Its id.
    pub id: DocumentId,
    /// Whether a document is stored.
    pub stored: bool,
    /// Whether its events fold to a document.
    pub folded: bool,
    /// The fields that differ: as stored before, as folded after. Empty if its events can't be folded.
    pub changes: Vec<Change>,
    /// How many more fields differ, which are not shown.
    pub left_out: u64,
    /// Why its events can't be folded, if they can't.
    pub error: Option<String>,
}

/// How many documents are folded in one reading of the log.
const SLICE: u64 = 100_000;
/// How many documents are read at once.
const PAGE: usize = 500;
/// How often a document that changed meanwhile is looked at again.
const LOOKS: u32 = 5;

/// A document on its way from its first event on.
struct Plain<D> {
    /// Up to where its events count.
    limit: Mark,
    document: Option<D>,
    error: Option<String>,
    /// Events of it are set aside with their stream, so that nothing can be said.
    is_aside: bool,
}

impl<D: Serialize> Plain<D> {
    fn new(limit: Mark) -> Self {
        Self { limit, document: None, error: None, is_aside: false }
    }

    fn body(&self) -> Result<Option<Value>> {
        self.document.as_ref().map(|document| Json::of(document)?.to()).transpose().map_err(Into::into)
    }

    fn is(&self, stored: Option<&Json>) -> Result<bool> {
        let Ok(stored) = value(stored) else { return Ok(false) };
        Ok(self.error.is_none() && self.body()? == stored)
    }
}

type Plains<D> = BTreeMap<DocumentId, Plain<D>>;

/// Streams that are set aside, from where on.
pub(super) type Aside = BTreeMap<StreamId, Position>;

impl<P: Projection> Folder<P> {
    /// Folds documents from their first event on and compares them with what is stored. `tell` hears of each that differs.
    pub(crate) async fn verify<S: Store>(
        &self,
        store: &S,
        env: &dyn Env,
        sample: Sample,
        tell: &mut (dyn FnMut(Differing) + Send),
    ) -> Result<Verified> {
        let mut verified = Verified::default();
        match sample {
            Sample::Some(most) => {
                let ids = self.drawn(store, env, most).await?;
                self.verify_exactly(store, ids, &mut verified, tell).await?;
            }
            Sample::All => {
                let slices = store.count(&self.collection).await?.documents / SLICE + 1;
                for slice in 0..slices {
                    self.verify_slice(store, |id| hash(id) % slices == slice, &mut verified, tell).await?;
                }
            }
        }
        Ok(verified)
    }

    /// So many documents, each as likely as any other.
    async fn drawn<S: Store>(&self, store: &S, env: &dyn Env, most: usize) -> Result<Vec<DocumentId>> {
        let (mut drawn, mut seen, mut after) = (Vec::new(), 0_u64, None);
        loop {
            let page = store.scan(&self.collection, after, PAGE).await?;
            let Some(last) = page.last().filter(|_| most > 0) else { return Ok(drawn) };
            after = Some(last.id.clone());
            for record in page {
                seen += 1;
                if drawn.len() < most {
                    drawn.push(record.id);
                } else if let Ok(place) = usize::try_from(env.random() % seen)
                    && let Some(drawn) = drawn.get_mut(place)
                {
                    *drawn = record.id;
                }
            }
        }
    }

    /// Verifies all documents whose ids are wanted, by reading the log once; then, exactly, those of which that could not tell.
    async fn verify_slice<S: Store>(
        &self,
        store: &S,
        wanted: impl Fn(&DocumentId) -> bool,
        verified: &mut Verified,
        tell: &mut (dyn FnMut(Differing) + Send),
    ) -> Result<()> {
        let through = store.checkpoint(&self.collection).await?.mark;
        let mut aside = self.aside(store).await?;
        let mut plains = Plains::new();
        let mut replay = Replay::Range { from: Mark::default(), through: through.clone() };
        while let Some((partition, page)) = replay.next(store).await? {
            self.fold_plainly(&self.route(partition, page), &mut aside, &mut plains, |id| {
                wanted(id).then(|| through.clone())
            });
            tokio::task::yield_now().await;
        }
        let (mut doubtful, ids): (Vec<_>, Vec<_>) = (Vec::new(), plains.keys().cloned().collect());
        for chunk in ids.chunks(PAGE) {
            let mut records = by_id(store.load_current(&self.collection, chunk.to_vec()).await?);
            for id in chunk {
                let (Some(plain), record) = (plains.remove(id), records.remove(id)) else { continue };
                let header = record.as_ref().map(|record| &record.header);
                let is_there = header.is_none_or(|header| {
                    let mut lanes = header.mark.lanes().filter(|(lane, _)| lane.partition().is_some());
                    header.parked.is_none() && lanes.all(|(lane, at)| at <= through.get(lane))
                });
                let body = record.as_ref().and_then(|record| record.body.as_ref());
                if is_there && !plain.is_aside && plain.is(body)? {
                    verified.checked += 1;
                } else {
                    doubtful.push(id.clone());
                }
            }
        }
        // Those that no event belongs to.
        let mut after = None;
        loop {
            let page = store.scan(&self.collection, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.id.clone());
            let new = page.into_iter().map(|record| record.id);
            doubtful.extend(new.filter(|id| wanted(id) && ids.binary_search(id).is_err()));
        }
        self.verify_exactly(store, doubtful, verified, tell).await
    }

    /// Verifies these documents, each as far as it had come when it was read.
    async fn verify_exactly<S: Store>(
        &self,
        store: &S,
        mut ids: Vec<DocumentId>,
        verified: &mut Verified,
        tell: &mut (dyn FnMut(Differing) + Send),
    ) -> Result<()> {
        for _ in 0..LOOKS {
            if ids.is_empty() {
                return Ok(());
            }
            let through = store.checkpoint(&self.collection).await?.mark;
            let mut records = BTreeMap::new();
            for chunk in ids.chunks(PAGE) {
                records.extend(by_id(store.load_current(&self.collection, chunk.to_vec()).await?));
            }
            let limit = |id: &DocumentId| {
                // One that is not there has not been made by any event up to the checkpoint.
                records.get(id).map_or_else(|| through.clone(), |record| record.header.mark.clone())
            };
            let mut plains: Plains<P::Document> =
                ids.iter().map(|id| (id.clone(), Plain::new(limit(id)))).collect();
            self.fold_all_plainly(store, &mut plains).await?;
            let mut doubtful = Vec::new();
            for id in ids {
                let Some(plain) = plains.remove(&id) else { continue };
                let record = records.get(&id);
                let body = record.and_then(|record| record.body.as_ref());
                if plain.is_aside || record.is_some_and(|record| record.header.parked.is_some()) {
                    verified.parked += 1;
                } else if plain.is(body)? {
                    verified.checked += 1;
                } else {
                    doubtful.push((id, plain));
                }
            }
            ids = Vec::new();
            // What is another one by now, or was folded without a stream that is taken up again, is looked at once more.
            let mut doubtful = doubtful.into_iter();
            loop {
                let chunk: Vec<_> = doubtful.by_ref().take(PAGE).collect();
                if chunk.is_empty() {
                    break;
                }
                let again = chunk.iter().map(|(id, _)| id.clone()).collect();
                let mut again = by_id(store.load_current(&self.collection, again).await?);
                for (id, plain) in chunk {
                    let (before, now) = (records.get(&id), again.remove(&id));
                    if before != now.as_ref() {
                        ids.push(id);
                        continue;
                    }
                    verified.checked += 1;
                    verified.differing += 1;
                    let (stored, damage) = match value(before.and_then(|record| record.body.as_ref())) {
                        Ok(stored) => (stored, None),
                        Err(fault) => (None, Some(format!("what is stored is damaged: {fault}; refold it"))),
                    };
                    let error = damage.or_else(|| plain.error.clone());
                    let folded = plain.body()?.filter(|_| error.is_none());
                    let Changes { shown, left_out } = match &error {
                        None => Changes::between(stored.as_ref(), folded.as_ref()),
                        Some(_) => Changes::default(),
                    };
                    tell(Differing {
                        id,
                        stored: stored.is_some(),
                        folded: folded.is_some(),
                        changes: shown,
                        left_out,
                        error,
                    });
                }
            }
        }
        verified.moving += ids.len() as u64;
        Ok(())
    }

    /// Folds these documents, each up to its own limit.
    async fn fold_all_plainly<S: Store>(&self, store: &S, plains: &mut Plains<P::Document>) -> Result<()> {
        let mut aside = self.aside(store).await?;
        let mut readings = Vec::new();
        if self.routes_by_stream() {
            for (id, plain) in plains.iter() {
                // What has an id that no stream can have was made by no event.
                if StreamId::new(id).is_ok() {
                    let (none, through) = (Mark::default(), plain.limit.clone());
                    readings.push(self.replay_of(id, Revision(0), none, through, store)?);
                }
            }
        } else {
            let mut through = Mark::default();
            for plain in plains.values() {
                through.merge(&plain.limit);
            }
            readings.push(Replay::Range { from: Mark::default(), through });
        }
        for mut replay in readings {
            while let Some((partition, page)) = replay.next(store).await? {
                self.fold_plainly(&self.route(partition, page), &mut aside, plains, |_| None);
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Folds a page into these documents, and into others if `new` says up to where their events count.
    fn fold_plainly(
        &self,
        page: &Routed<P::Event>,
        aside: &mut Aside,
        plains: &mut Plains<P::Document>,
        new: impl Fn(&DocumentId) -> Option<Mark>,
    ) {
        for step in &page.steps {
            match step {
                Step::Fold(event, ids, _) => {
                    let is_aside = aside.get(&event.stream).is_some_and(|from| event.position >= *from);
                    for id in ids.as_slice() {
                        let Some(plain) = counting(plains, id, event, &new) else { continue };
                        if is_aside {
                            plain.is_aside = true;
                            continue;
                        }
                        match self.fold(plain.document.take(), event) {
                            Ok(document) => plain.document = document,
                            Err(error) => plain.error = Some(said(event, &error)),
                        }
                    }
                }
                Step::Broken(event, error) if self.routes_by_stream() => {
                    if let Some(plain) = counting(plains, &DocumentId::from(&event.stream), event, &new) {
                        plain.error = Some(said(event, error));
                    }
                }
                // Nobody can tell where it belongs, so that nothing can be said of what else its stream belongs to.
                Step::Broken(event, _) => {
                    aside.entry(event.stream.clone()).or_insert(event.position);
                }
            }
        }
    }

    /// Which streams are set aside.
    pub(super) async fn aside<S: Store>(&self, store: &S) -> Result<Aside> {
        let (mut aside, mut after) = (Aside::new(), None);
        loop {
            let page = store.parked(&self.collection.streams(), after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(aside) };
            after = Some(last.id.clone());
            let parked = page.into_iter().filter_map(|record| record.header.parked);
            aside.extend(parked.map(|parked| (parked.stream, parked.position)));
        }
    }
}

/// The document, if this event counts for it.
fn counting<'a, D: Serialize, E>(
    plains: &'a mut Plains<D>,
    id: &DocumentId,
    event: &Event<E>,
    new: impl Fn(&DocumentId) -> Option<Mark>,
) -> Option<&'a mut Plain<D>> {
    if !plains.contains_key(id) {
        plains.insert(id.clone(), Plain::new(new(id)?));
    }
    let plain = plains.get_mut(id)?;
    let counts = plain.error.is_none() && event.position <= plain.limit.position(event.partition);
    counts.then_some(plain)
}

fn said<E>(event: &Event<E>, error: &super::Error) -> String {
    format!("{error} (revision {} of {})", event.revision, event.stream)
}

fn value(body: Option<&Json>) -> Result<Option<Value>, Invalid> {
    body.map(Json::to).transpose()
}

fn by_id(records: Vec<Record>) -> BTreeMap<DocumentId, Record> {
    records.into_iter().map(|record| (record.id.clone(), record)).collect()
}

/// The same for an id in any process.
fn hash(id: &DocumentId) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.as_str().hash(&mut hasher);
    hasher.finish()
}
