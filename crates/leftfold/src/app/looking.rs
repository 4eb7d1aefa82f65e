//! Inspection of one document: the events that made it, its past states, and the reasons why it is
//! missing.

use std::ops::ControlFlow;

use serde_json::Value;

use super::App;
use crate::documents::Store;
use crate::error::Result;
use crate::event::{DocumentId, Event, Partition, Position, Revision, StreamId};
use crate::fold::{Absence, AsOf, Explained, Explaining, Explanation, ExplanationCursor};
use crate::log::{Entry, Limit};
use crate::sequence::{Conflict, Held, Sequences};

/// The number of streams, or conflicts, to read at a time.
const PAGE: usize = 100;
/// The number of bytes of documents to compare for one part of an explanation.
const WORK: u64 = 64 << 20;

impl<S: Store> App<S> {
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
        let part = self.part(collection)?;
        let live = self.live(part).await?;
        let json = part.past(&self.0.setting, live, &DocumentId::new(id)?, moment).await?;
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
        let part = self.part(collection)?;
        let live = self.live(part).await?;
        part.explain(&self.0.setting, live, &DocumentId::new(id)?, until, after, tell).await
    }
}

impl<S: Store + Sequences> App<S> {
    /// Returns the reasons why a document is missing: all that can be found, at least one. For each
    /// stream, only the first few thousand events are checked.
    pub async fn why_not(&self, collection: &str, id: &str) -> Result<Vec<Absence>> {
        let (part, id) = (self.part(collection)?, DocumentId::new(id)?);
        let live = self.live(part).await?;
        let mut reasons = part.why_not(&self.0.setting, live, &id).await?;
        if reasons == [Absence::There] {
            return Ok(reasons);
        }
        let belongs = |stream: &StreamId, revision: Revision, entry: &Entry| {
            part.documents_of(event(stream, revision, entry)).contains(&id)
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

/// Builds the event that projections would see if this entry were in the log.
fn event(stream: &StreamId, revision: Revision, entry: &Entry) -> Event {
    let (Entry { id, kind, time, data, metadata }, stream) = (entry.clone(), stream.clone());
    Event { id, stream, revision, kind, time, data, metadata, partition: Partition(0), position: Position(0) }
}
