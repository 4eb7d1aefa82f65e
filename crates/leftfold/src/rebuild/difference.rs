//! The effect of a rebuild: the documents of two generations, compared at the same place in the
//! log.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tokio::time::sleep;

use crate::documents::{Collection, Documents, Record, folded};
use crate::error::Result;
use crate::event::DocumentId;
use crate::json::Json;
use crate::mark::Mark;

/// The difference between the documents of a rebuild and the live ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Difference {
    /// Documents that were compared, in either generation.
    pub compared: u64,
    /// Documents that exist in both generations and differ.
    pub differing: u64,
    /// Documents that exist only in the live generation.
    pub only_live: u64,
    /// Documents that exist only in the rebuild.
    pub only_rebuilt: u64,
    /// Documents that could not be compared because they are parked in one of the generations.
    pub parked: u64,
    /// Documents that changed at every attempt, so that they could not be compared.
    pub moving: u64,
    /// Samples of documents that differ.
    pub samples: Vec<Sampled>,
}

/// A document that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sampled {
    /// The id of the document.
    pub id: DocumentId,
    /// The live document, if there is one.
    pub live: Option<Value>,
    /// The rebuilt document, if there is one.
    pub rebuilt: Option<Value>,
}

/// The number of documents to compare at a time.
const PAGE: usize = 500;
/// The number of attempts for a document that changed meanwhile.
const LOOKS: u32 = 6;

/// Compares all documents of two generations.
pub(super) async fn compare<S: Documents>(
    store: &S,
    live: &Collection,
    rebuilt: &Collection,
    samples: usize,
) -> Result<Difference> {
    let mut difference = Difference::default();
    let mut after = None;
    loop {
        let (mut ids, mut ends) = (BTreeSet::new(), Vec::new());
        for collection in [live, rebuilt] {
            let page = store.scan(collection, after.clone(), PAGE).await?;
            if page.len() >= PAGE {
                ends.extend(page.last().map(|record| record.id.clone()));
            }
            ids.extend(page.into_iter().map(|record| record.id));
        }
        // Beyond the end of the shorter page, the other generation has not been read yet.
        let end = ends.into_iter().min();
        if let Some(end) = &end {
            ids.retain(|id| id <= end);
        }
        difference.look(store, live, rebuilt, ids, samples).await?;
        match end {
            Some(end) => after = Some(end),
            None => return Ok(difference),
        }
    }
}

impl Difference {
    /// Returns whether all compared documents are the same.
    pub fn is_none(&self) -> bool {
        self.differing + self.only_live + self.only_rebuilt == 0
    }

    /// Compares these documents, and retries those that changed meanwhile.
    async fn look<S: Documents>(
        &mut self,
        store: &S,
        live: &Collection,
        rebuilt: &Collection,
        mut ids: BTreeSet<DocumentId>,
        samples: usize,
    ) -> Result<()> {
        for look in 0..LOOKS {
            if ids.is_empty() {
                return Ok(());
            }
            if look > 0 {
                sleep(Duration::from_millis(20 << look)).await;
            }
            let chunk: Vec<_> = std::mem::take(&mut ids).into_iter().collect();
            // Read the checkpoints first. A document that has not moved beyond the earlier one
            // since then has the same state there in both generations.
            let (one, other) = (store.checkpoint(live).await?.mark, store.checkpoint(rebuilt).await?.mark);
            let place = earlier(&folded(&one), &folded(&other));
            let mut ours = records(store, live, &chunk).await?;
            let mut theirs = records(store, rebuilt, &chunk).await?;
            for id in chunk {
                let (ours, theirs) = (ours.remove(&id), theirs.remove(&id));
                let both = [&ours, &theirs];
                if both.into_iter().flatten().any(|record| record.header.parked.is_some()) {
                    self.parked += 1;
                } else if both.into_iter().flatten().all(|record| place.covers(&folded(&record.header.mark)))
                {
                    self.count(id, body(ours), body(theirs), samples)?;
                } else {
                    ids.insert(id);
                }
            }
        }
        self.moving += ids.len() as u64;
        Ok(())
    }

    fn count(
        &mut self,
        id: DocumentId,
        live: Option<Json>,
        rebuilt: Option<Json>,
        samples: usize,
    ) -> Result<()> {
        if live.is_none() && rebuilt.is_none() {
            return Ok(());
        }
        self.compared += 1;
        if live == rebuilt {
            return Ok(());
        }
        let value = |json: Option<Json>| json.map(|json| json.to()).transpose();
        let (live, rebuilt): (Option<Value>, Option<Value>) = (value(live)?, value(rebuilt)?);
        match (&live, &rebuilt) {
            // The same fields in another order.
            (live, rebuilt) if live == rebuilt => return Ok(()),
            (Some(_), None) => self.only_live += 1,
            (None, Some(_)) => self.only_rebuilt += 1,
            _ => self.differing += 1,
        }
        if self.samples.len() < samples {
            self.samples.push(Sampled { id, live, rebuilt });
        }
        Ok(())
    }
}

async fn records<S: Documents>(
    store: &S,
    collection: &Collection,
    ids: &[DocumentId],
) -> Result<BTreeMap<DocumentId, Record>> {
    let records = store.load_current(collection, ids.to_vec()).await?;
    Ok(records.into_iter().map(|record| (record.id.clone(), record)).collect())
}

fn body(record: Option<Record>) -> Option<Json> {
    record.and_then(|record| record.body)
}

/// Returns the mark that both have reached.
fn earlier(one: &Mark, other: &Mark) -> Mark {
    one.lanes().map(|(lane, number)| (lane.clone(), number.min(other.get(lane)))).collect()
}
