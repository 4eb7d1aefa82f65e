//! Commands of operators: parked units, refolds and rebuilds.

use std::sync::Arc;

use serde::Serialize;

use super::App;
use crate::documents::{Generations, Parked};
use crate::error::Result;
use crate::event::{DocumentId, StreamId};
use crate::fold::{ErasedProjection, RepairOutcome, WorkerContext};
use crate::inspect::{InspectProjection, parked_units};
use crate::rebuild::{self, Rebuild, change, tidy};
use crate::store::Store;

/// A document or stream that can be parked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// A document.
    Document(DocumentId),
    /// A stream, for projections that do not route by stream.
    Stream(StreamId),
}

impl<S: Store> App<S> {
    /// Returns at most `most` parked units of a projection, after a unit: streams first, then
    /// documents by id.
    pub async fn parked(
        &self,
        collection: &str,
        after: Option<&Unit>,
        most: usize,
    ) -> Result<Vec<(Unit, Parked)>> {
        let name = self.projection(collection)?.collection();
        parked_units(self.store(), name, after, most).await
    }

    /// Retries a parked unit with the current code and unparks it. A document is folded from its
    /// failing event on; the documents of a stream are folded again. With `dry_run`, nothing is
    /// written and the answer says what would happen.
    pub async fn retry(&self, collection: &str, unit: &Unit, dry_run: bool) -> Result<RepairOutcome> {
        let mut answer = RepairOutcome::NotParked;
        self.retry_some(collection, vec![unit.clone()], dry_run, |_, outcome| answer = outcome.clone())
            .await?;
        Ok(answer)
    }

    /// Retries several parked units, documents together. `tell` receives the result of each.
    pub async fn retry_some(
        &self,
        collection: &str,
        units: Vec<Unit>,
        dry_run: bool,
        mut tell: impl FnMut(&Unit, &RepairOutcome) + Send,
    ) -> Result<()> {
        let (projection, context) = (self.projection(collection)?, &self.0.context);
        let mut documents = Vec::new();
        for unit in units {
            match unit {
                Unit::Stream(stream) => {
                    let mut live = self.live(projection).await?;
                    let outcome = loop {
                        let outcome = projection.retry_stream(context, live, &stream, dry_run).await?;
                        if !self.is_switched(projection, &mut live).await? {
                            break outcome;
                        }
                    };
                    tell(&Unit::Stream(stream), &outcome);
                }
                Unit::Document(id) => documents.push(id),
            }
        }
        let mut live = self.live(projection).await?;
        let mut answers;
        loop {
            answers = Vec::with_capacity(documents.len());
            let mut hear = |id, outcome| answers.push((id, outcome));
            projection.retry_documents(context, live, documents.clone(), dry_run, &mut hear).await?;
            if !self.is_switched(projection, &mut live).await? {
                break;
            }
        }
        for (id, outcome) in answers {
            tell(&Unit::Document(id), &outcome);
        }
        Ok(())
    }

    /// Returns whether another generation is live by now. If so, the caller has repaired a
    /// generation that nobody reads.
    async fn is_switched(&self, projection: &Arc<dyn InspectProjection<S>>, live: &mut u32) -> Result<bool> {
        let before = std::mem::replace(live, self.live(projection).await?);
        Ok(before != *live)
    }

    /// Retries every parked unit of a projection. `tell` receives the result of each.
    pub async fn retry_all(
        &self,
        collection: &str,
        dry_run: bool,
        mut tell: impl FnMut(&Unit, &RepairOutcome) + Send,
    ) -> Result<()> {
        const PAGE: usize = 100;
        let mut after = None;
        loop {
            let page = self.parked(collection, after.as_ref(), PAGE).await?;
            let units: Vec<_> = page.into_iter().map(|(unit, _)| unit).collect();
            let Some(last) = units.last().cloned() else { return Ok(()) };
            self.retry_some(collection, units, dry_run, &mut tell).await?;
            after = Some(last);
        }
    }

    /// Folds one document again from its first event and replaces it under guard. If the fold
    /// fails, the document stays as it is.
    pub async fn refold(&self, collection: &str, id: &str) -> Result<RepairOutcome> {
        let (projection, id) = (self.projection(collection)?, DocumentId::new(id)?);
        let mut live = self.live(projection).await?;
        loop {
            let outcome = projection.refold(&self.0.context, live, &id).await?;
            if !self.is_switched(projection, &mut live).await? {
                return Ok(outcome);
            }
        }
    }

    /// Begins to rebuild a projection with the current code, beside the live documents. If code of
    /// the same version has begun a rebuild, this resumes it. Readers see none of it until the
    /// [switch](Rebuild::switch).
    pub async fn rebuild(&self, collection: &str) -> Result<Rebuild<S>> {
        Rebuild::begin(self.projection(collection)?.clone(), self.0.context.clone()).await
    }

    /// Switches back to the documents that were live before the last rebuild, once they have caught
    /// up. A second undo switches forward again. If possible, run it with the code that built them,
    /// because the current code folds the events they have missed and all later ones.
    pub async fn undo(&self, collection: &str) -> Result<()> {
        let projection: Arc<dyn ErasedProjection<S>> = self.projection(collection)?.clone();
        rebuild::undo(&projection, &self.0.context).await
    }

    /// Cancels the rebuild under way, whichever process began it. Returns whether there was one.
    pub async fn cancel_rebuild(&self, collection: &str) -> Result<bool> {
        let name = self.projection(collection)?.collection();
        let WorkerContext { store, env, .. } = &self.0.context;
        let before = store.generations(name).await?;
        let after = change(store, &**env, name, Generations::cancelled).await?;
        tidy(store, &**env, name).await?;
        Ok(after.revision != before.revision)
    }

    /// Deletes the documents that were kept for an [undo](Self::undo). Returns whether there were
    /// any.
    pub async fn forget_kept(&self, collection: &str) -> Result<bool> {
        let name = self.projection(collection)?.collection();
        let WorkerContext { store, env, .. } = &self.0.context;
        let before = store.generations(name).await?;
        let after = change(store, &**env, name, Generations::without_kept).await?;
        tidy(store, &**env, name).await?;
        Ok(after.revision != before.revision)
    }
}
