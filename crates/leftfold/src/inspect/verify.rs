//! Verification: compares the stored documents with a fold of the log. It folds without the caches,
//! guards and batches of the projector.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::Serialize;
use serde_json::Value;

use super::changes::{Changes, FieldChange};
use super::plain::{Plain, Plains};
use crate::documents::Record;
use crate::env::Env;
use crate::error::{Invalid, Result};
use crate::event::DocumentId;
use crate::fold::{Folder, Projection, Replay};
use crate::json::Json;
use crate::mark::Mark;
use crate::store::Store;

/// The documents to verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// All documents, including missing ones. It reads the log once for each hundred thousand
    /// documents.
    All,
    /// At most this many, drawn at random from those that readers see.
    Some(usize),
}

/// The result of a verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Documents that were folded again and compared with the stored ones.
    pub checked: u64,
    /// Documents that differ from the fold of their events.
    pub differing: u64,
    /// Documents that were skipped because they are parked or have events of a parked stream.
    pub parked: u64,
    /// Documents that changed at every attempt, so that they could not be verified.
    pub moving: u64,
}

/// A document that differs from the fold of its events.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Differing {
    /// The id of the document.
    pub id: DocumentId,
    /// `true` if a document is stored.
    pub stored: bool,
    /// `true` if its events fold to a document.
    pub folded: bool,
    /// The fields that differ: the stored value is `before`, the folded one `after`. Empty if its
    /// events can't be folded.
    pub changes: Vec<FieldChange>,
    /// The number of further fields that differ and are not shown.
    pub left_out: u64,
    /// The error, if its events can't be folded.
    pub error: Option<String>,
}

/// The number of documents to fold in one read of the log.
const SLICE: u64 = 100_000;
/// The number of documents to read at once.
pub(super) const PAGE: usize = 500;
/// The number of attempts for a document that changed meanwhile.
const LOOKS: u32 = 5;

impl<P: Projection> Folder<P> {
    /// Folds documents from their first event and compares them with the stored ones. `tell`
    /// receives each that differs.
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

    /// Draws at most `most` documents, each with the same probability.
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

    /// Verifies all documents with wanted ids by reading the log once. Then it verifies exactly
    /// those for which that was inconclusive.
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
        // Add the stored documents that no event belongs to.
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
                // A document without a record was not created by any event up to the checkpoint.
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
            // Check a document again if its record changed meanwhile, for example by the retry of
            // a parked stream.
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
                        Err(fault) => {
                            (None, Some(format!("the stored document is damaged: {fault}; refold it")))
                        }
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
}

pub(super) fn value(body: Option<&Json>) -> Result<Option<Value>, Invalid> {
    body.map(Json::to).transpose()
}

fn by_id(records: Vec<Record>) -> BTreeMap<DocumentId, Record> {
    records.into_iter().map(|record| (record.id.clone(), record)).collect()
}

/// Hashes an id; the result is the same in every process.
fn hash(id: &DocumentId) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.as_str().hash(&mut hasher);
    hasher.finish()
}
