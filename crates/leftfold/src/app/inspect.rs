//! Inspection of an application: its status, explanations of documents, verification, and the
//! doctor.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{App, Leftfold};
use crate::error::Result;
use crate::event::{DocumentId, Event, Partition, Position, Revision, StreamId};
use crate::fold::{Occurrence, Pulse, WorkerContext};
use crate::inspect::doctor::{self, Examine, Finding};
use crate::inspect::{
    Absence, AsOf, Differing, Explained, Explaining, Explanation, ExplanationCursor, InspectProjection,
    ProjectionStatus, Sample, SlowFold, Verified, Vitals, stored_status,
};
use crate::log::{Entry, Limit};
use crate::mark::Mark;
use crate::sequence::{Conflict, Held, Sequences};
use crate::store::Store;

/// The number of streams, or conflicts, to read at a time.
const PAGE: usize = 100;
/// The number of bytes of documents to compare for one part of an explanation.
const WORK: u64 = 64 << 20;

impl<S: Store> App<S> {
    /// Returns the status of all projections.
    pub async fn status(&self) -> Result<Vec<ProjectionStatus>> {
        let head = self.0.context.store.heads().await?;
        let mut all = Vec::new();
        for projection in &self.0.projections {
            all.push(self.status_of(projection, head.clone()).await?);
        }
        Ok(all)
    }

    async fn status_of(
        &self,
        projection: &Arc<dyn InspectProjection<S>>,
        head: Mark,
    ) -> Result<ProjectionStatus> {
        let stored = stored_status(&self.0.context.store, projection.collection(), head).await?;
        let pulse = projection.seen();
        let folding = self.slow_fold(&pulse).await?;
        let mut tally = stored.tally;
        tally.last_error = pulse.last_error.or(tally.last_error);
        Ok(ProjectionStatus {
            activity: pulse.activity,
            events_per_second: pulse.events_per_second,
            version: projection.fingerprint().to_owned(),
            rebuild_needed: stored.generations.differs(projection.fingerprint()),
            tally,
            folding,
            figures: pulse.figures,
            ..stored
        })
    }

    /// Returns the event that a projection has been folding for longer than a second.
    async fn slow_fold(&self, pulse: &Pulse) -> Result<Option<SlowFold>> {
        const LONG: Duration = Duration::from_secs(1);
        let slow = pulse.folding.as_ref().and_then(|folding| folding.longer_than(LONG));
        let Some((partition, position, took)) = slow else { return Ok(None) };
        let (after, one) = (Position(position.0.saturating_sub(1)), Limit { events: 1, ..Limit::default() });
        let page = self.store().read(partition, after, one).await?;
        let event = page.events.first().map(Occurrence::of);
        Ok(event.map(|event| SlowFold { event, seconds: took.as_secs() }))
    }

    /// Returns the state of each projection at low cost, for probes that poll.
    pub async fn vitals(&self) -> Result<Vec<Vitals>> {
        let store = self.store();
        let head = store.heads().await?;
        let mut all = Vec::with_capacity(self.0.projections.len());
        for projection in &self.0.projections {
            let name = projection.collection();
            let position = store.checkpoint(name).await?.mark;
            let is_parked = !store.parked(name, None, 1).await?.is_empty()
                || !store.parked(&name.streams(), None, 1).await?.is_empty();
            let pulse = projection.seen();
            all.push(Vitals {
                projection: name.to_string(),
                activity: pulse.activity,
                last_error: pulse.last_error,
                lag: position.distance(&head),
                position,
                is_parked,
            });
        }
        Ok(all)
    }

    /// Folds documents again from the log and compares them with the stored ones. Each is folded as
    /// far as it had come when it was read, so concurrent appends do not matter. Nothing is
    /// changed. `tell` receives each document that differs. Parked documents are only counted;
    /// [`parked`](Self::parked) lists them.
    pub async fn verify(
        &self,
        collection: &str,
        sample: Sample,
        mut tell: impl FnMut(Differing) + Send,
    ) -> Result<Verified> {
        let projection = self.projection(collection)?;
        let live = self.live(projection).await?;
        projection.verify(&self.0.context, live, sample, &mut tell).await
    }

    /// Passes every event that made a document to `tell`, in order, with its changes. Returns
    /// `false` if nothing was folded into such a document yet; [`why_not`](Self::why_not) says why.
    pub async fn explain(
        &self,
        collection: &str,
        id: &str,
        mut tell: impl FnMut(Explained) + Send,
    ) -> Result<bool> {
        self.explain_all(collection, id, None, &mut tell).await
    }

    /// Does the same up to a moment.
    pub async fn explain_until(
        &self,
        collection: &str,
        id: &str,
        moment: &AsOf,
        mut tell: impl FnMut(Explained) + Send,
    ) -> Result<bool> {
        self.explain_all(collection, id, Some(moment), &mut tell).await
    }

    /// Returns a part of an explanation, from its beginning or from the end of an earlier part.
    /// Returns `None` if nothing was folded into such a document yet.
    ///
    /// A part ends at the limit, whose bytes count its JSON, or sooner if the document is large.
    /// Each call folds the events before the part again.
    pub async fn explain_part(
        &self,
        collection: &str,
        id: &str,
        moment: Option<&AsOf>,
        after: Option<&ExplanationCursor>,
        limit: Limit,
    ) -> Result<Option<Explanation>> {
        let (mut events, mut bytes, mut work) = (Vec::new(), 0, 0);
        let mut tell = |step: Explained| {
            // The extra byte is the comma after it.
            bytes += serde_json::to_vec(&step).map_or(0, |json| json.len() + 1);
            work += step.size.unwrap_or_default();
            events.push(step);
            let is_full = events.len() >= limit.events || bytes >= limit.bytes || work >= WORK;
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let next = match self.explained(collection, id, moment, after, &mut tell).await? {
            Explaining::NotThere => return Ok(None),
            Explaining::Ended => None,
            Explaining::Stopped(cursor) => Some(cursor),
        };
        Ok(Some(Explanation { events, next }))
    }

    /// Returns a document as of a moment: the result of folding its events up to then with the
    /// current code.
    pub async fn past(&self, collection: &str, id: &str, moment: &AsOf) -> Result<Option<Value>> {
        let projection = self.projection(collection)?;
        let live = self.live(projection).await?;
        let json = projection.past(&self.0.context, live, &DocumentId::new(id)?, moment).await?;
        Ok(json.map(|json| json.to()).transpose()?)
    }

    async fn explain_all(
        &self,
        collection: &str,
        id: &str,
        until: Option<&AsOf>,
        tell: &mut (dyn FnMut(Explained) + Send),
    ) -> Result<bool> {
        let mut tell = |step| {
            tell(step);
            ControlFlow::Continue(())
        };
        let explained = self.explained(collection, id, until, None, &mut tell).await?;
        Ok(!matches!(explained, Explaining::NotThere))
    }

    async fn explained(
        &self,
        collection: &str,
        id: &str,
        until: Option<&AsOf>,
        after: Option<&ExplanationCursor>,
        tell: &mut (dyn FnMut(Explained) -> ControlFlow<()> + Send),
    ) -> Result<Explaining> {
        let projection = self.projection(collection)?;
        let live = self.live(projection).await?;
        projection.explain(&self.0.context, live, &DocumentId::new(id)?, until, after, tell).await
    }
}

impl<S: Store + Sequences> App<S> {
    /// Returns the reasons why a document is missing: all that can be found, at least one. For each
    /// stream, only the first few thousand events are checked.
    pub async fn why_not(&self, collection: &str, id: &str) -> Result<Vec<Absence>> {
        let (projection, id) = (self.projection(collection)?, DocumentId::new(id)?);
        let live = self.live(projection).await?;
        let mut reasons = projection.why_not(&self.0.context, live, &id).await?;
        if reasons == [Absence::There] {
            return Ok(reasons);
        }
        let belongs = |stream: &StreamId, revision: Revision, entry: &Entry| {
            projection.documents_of(event(stream, revision, entry)).contains(&id)
        };
        self.held(&mut reasons, &belongs).await?;
        self.in_conflict(&mut reasons, &belongs).await?;
        if reasons.is_empty() {
            reasons.push(Absence::NeverRouted);
        }
        Ok(reasons)
    }

    /// Adds the first held event of each stream that belongs to the document.
    async fn held(
        &self,
        reasons: &mut Vec<Absence>,
        belongs: &(impl Fn(&StreamId, Revision, &Entry) -> bool + Sync),
    ) -> Result<()> {
        let store = self.store();
        let mut after = None;
        loop {
            let waiting = store.waiting(after, PAGE).await?;
            let streams: Vec<_> = waiting.iter().map(|(stream, _)| stream.clone()).collect();
            let Some(last) = streams.last().cloned() else { return Ok(()) };
            let pages = store.held(streams, Limit::default()).await?;
            for (stream, standing) in &waiting {
                let page = pages.get(stream).map(|page| page.held.as_slice()).unwrap_or_default();
                let found = page.iter().find(|held| belongs(stream, held.revision, &held.entry));
                let Some(Held { revision, since, .. }) = found.cloned() else { continue };
                let waits_for = Revision(standing.after().0 + 1);
                reasons.push(Absence::Held { stream: stream.clone(), revision, waits_for, since });
            }
            after = Some(last);
        }
    }

    /// Adds the conflicting events that would belong to the document.
    async fn in_conflict(
        &self,
        reasons: &mut Vec<Absence>,
        belongs: &(impl Fn(&StreamId, Revision, &Entry) -> bool + Sync),
    ) -> Result<()> {
        let mut after: Option<Conflict> = None;
        loop {
            let page = self.store().conflicts(after, PAGE).await?;
            for Conflict { stream, revision, why, entry, .. } in &page {
                if belongs(stream, *revision, entry) {
                    let (stream, revision, reason) = (stream.clone(), *revision, why.to_string());
                    reasons.push(Absence::InConflict { stream, revision, reason });
                }
            }
            after = page.into_iter().next_back();
            if after.is_none() {
                return Ok(());
            }
        }
    }
}

impl<S: Store + Sequences + Examine> Leftfold<S> {
    /// Runs the checks of [`App::doctor`] without opening the application first, so that nothing
    /// missing is created.
    pub async fn doctor(self) -> Result<Vec<Finding>> {
        self.assembled()?.0.doctor().await
    }
}

impl<S: Store + Sequences + Examine> App<S> {
    /// Checks the store, the projections, the deliveries held before the log, and the reactions.
    /// Each [finding](Finding) that is not fine says what to do; see [`doctor`]. The check changes
    /// no data. It claims the lease of an idle projection for zero time and releases it.
    pub async fn doctor(&self) -> Result<Vec<Finding>> {
        let WorkerContext { store, env, .. } = &self.0.context;
        let mut findings = doctor::look_over(store, &**env).await?;
        for projection in &self.0.projections {
            let status = async || self.status_of(projection, store.heads().await?).await;
            findings.extend(doctor::look_at(store, &**env, projection.collection(), status).await);
        }
        Ok(findings)
    }
}

/// Builds the event that projections would see if this entry were in the log.
fn event(stream: &StreamId, revision: Revision, entry: &Entry) -> Event {
    let (Entry { id, kind, time, data, metadata }, stream) = (entry.clone(), stream.clone());
    Event { id, stream, revision, kind, time, data, metadata, partition: Partition(0), position: Position(0) }
}
