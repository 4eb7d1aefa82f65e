//! Folding documents plainly: without caches, guards and batches.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::verify::{PAGE, value};
use crate::error::Result;
use crate::event::{DocumentId, Event, Position, Revision, StreamId};
use crate::fold::{self, Folder, Projection, Replay, Routed, Step};
use crate::json::Json;
use crate::mark::Mark;
use crate::store::Store;

/// A document that is being folded from its first event.
pub(super) struct Plain<D> {
    /// The mark up to which its events count.
    pub(super) limit: Mark,
    pub(super) document: Option<D>,
    pub(super) error: Option<String>,
    /// `true` if some of its events wait with a parked stream, so that it can't be verified.
    pub(super) is_aside: bool,
}

impl<D: Serialize> Plain<D> {
    pub(super) fn new(limit: Mark) -> Self {
        Self { limit, document: None, error: None, is_aside: false }
    }

    pub(super) fn body(&self) -> Result<Option<Value>> {
        self.document.as_ref().map(|document| Json::of(document)?.to()).transpose().map_err(Into::into)
    }

    pub(super) fn is(&self, stored: Option<&Json>) -> Result<bool> {
        let Ok(stored) = value(stored) else { return Ok(false) };
        Ok(self.error.is_none() && self.body()? == stored)
    }
}

pub(super) type Plains<D> = BTreeMap<DocumentId, Plain<D>>;

/// Parked streams, with the position from which on they are parked.
pub(super) type Aside = BTreeMap<StreamId, Position>;

impl<P: Projection> Folder<P> {
    /// Folds these documents, each up to its own limit.
    pub(super) async fn fold_all_plainly<S: Store>(
        &self,
        store: &S,
        plains: &mut Plains<P::Document>,
    ) -> Result<()> {
        let mut aside = self.aside(store).await?;
        let mut readings = Vec::new();
        if self.routes_by_stream() {
            for (id, plain) in plains.iter() {
                // No event belongs to a document whose id is not a valid stream id.
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

    /// Folds a page into these documents. It adds another document if `new` returns the mark up to
    /// which its events count.
    pub(super) fn fold_plainly(
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
                // The event can't be routed, so any document of its stream is uncertain from here
                // on.
                Step::Broken(event, _) => {
                    aside.entry(event.stream.clone()).or_insert(event.position);
                }
            }
        }
    }

    /// Returns the parked streams.
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

/// Returns the document if this event counts for it.
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

fn said<E>(event: &Event<E>, error: &fold::Error) -> String {
    format!("{error} (revision {} of {})", event.revision, event.stream)
}
