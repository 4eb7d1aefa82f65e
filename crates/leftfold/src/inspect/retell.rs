//! Folding one document again, event by event, for inspection.

use std::vec;

use super::as_of::Until;
use super::plain::Aside;
use crate::error::Result;
use crate::event::{DocumentId, Partition, Revision, StreamId};
use crate::fold::{Error, Folder, Occurrence, Projection, Replay, Step, body};
use crate::json::Json;
use crate::mark::Mark;
use crate::store::Store;

/// The number of events after which other tasks get a turn.
const AT_ONCE: u32 = 256;

/// One document that is being folded from its first event, up to a moment.
pub(super) struct Retelling<'f, P: Projection> {
    folder: &'f Folder<P>,
    id: DocumentId,
    until: Until,
    replay: Replay,
    aside: Aside,
    page: Option<(Partition, vec::IntoIter<Step<P::Event>>)>,
    /// The document after the last event. A fold that fails consumes it.
    pub(super) document: Option<P::Document>,
    /// `true` if an event could not be folded. All later events then wait.
    pub(super) has_failed: bool,
    taken: u32,
}

/// The effect of an event on a document.
pub(super) enum Outcome {
    Folded,
    Failed(Error),
    /// It waits behind a failed event, or with its stream.
    Waiting,
}

impl<'f, P: Projection> Retelling<'f, P> {
    pub(super) async fn new<S: Store>(
        folder: &'f Folder<P>,
        store: &S,
        id: &DocumentId,
        until: Until,
        through: Mark,
    ) -> Result<Self> {
        let by_stream = folder.routes_by_stream();
        let aside = if by_stream { Aside::new() } else { folder.aside(store).await? };
        let replay = folder.replay_of(id, Revision(0), Mark::default(), through, store)?;
        let id = id.clone();
        Ok(Self { folder, id, until, replay, aside, page: None, document: None, has_failed: false, taken: 0 })
    }

    /// Folds the next event of the document. Returns `None` at the end.
    pub(super) async fn next<S: Store>(&mut self, store: &S) -> Result<Option<(Occurrence, Outcome)>> {
        loop {
            self.taken += 1;
            if self.taken.is_multiple_of(AT_ONCE) {
                tokio::task::yield_now().await;
            }
            let Some((partition, steps)) = &mut self.page else {
                let Some((partition, page)) = self.replay.next(store).await? else { return Ok(None) };
                self.page = Some((partition, self.folder.route(partition, page).steps.into_iter()));
                continue;
            };
            let partition = *partition;
            let Some(step) = steps.next() else {
                self.page = None;
                continue;
            };
            let event = match &step {
                Step::Fold(event, ids, _) if ids.as_slice().contains(&self.id) => Occurrence::of(event),
                Step::Broken(event, _) if self.is_named(&event.stream) => Occurrence::of(event),
                // The event can't be routed, so its whole stream waits.
                Step::Broken(event, _) if !self.folder.routes_by_stream() => {
                    self.aside.entry(event.stream.clone()).or_insert(event.position);
                    continue;
                }
                _ => continue,
            };
            if !self.until.covers(&event) {
                self.replay.leave(partition);
                self.page = None;
                continue;
            }
            let told = self.take(&event, step);
            return Ok(Some((event, told)));
        }
    }

    /// Returns whether events of a stream belong to the document because of the stream's name.
    fn is_named(&self, stream: &StreamId) -> bool {
        self.folder.routes_by_stream() && stream.as_str() == self.id.as_str()
    }

    fn take(&mut self, event: &Occurrence, step: Step<P::Event>) -> Outcome {
        if self.has_failed || self.aside.get(&event.stream).is_some_and(|from| event.position >= *from) {
            return Outcome::Waiting;
        }
        let failed = match step {
            Step::Broken(_, error) => error,
            Step::Fold(event, ..) => match self.folder.fold(self.document.take(), &event) {
                Ok(document) => {
                    self.document = document;
                    return Outcome::Folded;
                }
                Err(error) => error,
            },
        };
        self.has_failed = true;
        Outcome::Failed(failed)
    }

    /// Returns the document as it would be stored, or the reason why it can't be.
    pub(super) fn body(&self) -> Result<Option<Json>, Error> {
        self.document.as_ref().map(body).transpose()
    }
}

impl<P: Projection> Folder<P> {
    /// Returns the mark up to which the events of a document can be shown. `None` if nothing was
    /// folded into it yet.
    pub(super) async fn told_through<S: Store>(&self, store: &S, id: &DocumentId) -> Result<Option<Mark>> {
        let Some(record) = store.load(&self.collection, vec![id.clone()]).await?.pop() else {
            return Ok(None);
        };
        let mut through = store.checkpoint(&self.collection).await?.mark;
        through.merge(&record.header.mark);
        Ok(Some(through))
    }

    /// Returns a document as of a moment, by folding its events once. If an event can't be folded,
    /// it returns the document before that event.
    pub(crate) async fn past<S: Store>(
        &self,
        store: &S,
        id: &DocumentId,
        until: Until,
    ) -> Result<Option<Json>> {
        let Some(through) = self.told_through(store, id).await? else { return Ok(None) };
        let mut most = u64::MAX;
        loop {
            let mut retelling = Retelling::new(self, store, id, until, through.clone()).await?;
            let mut folded = 0;
            while folded < most && !retelling.has_failed {
                match retelling.next(store).await? {
                    Some((_, Outcome::Folded)) => folded += 1,
                    Some(_) => {}
                    None => break,
                }
            }
            if retelling.has_failed {
                // The failed fold has consumed the document: stop before it.
                most = folded;
                continue;
            }
            return match retelling.body() {
                Ok(body) => Ok(body),
                Err(_) => self.past_body(store, id, until, through).await,
            };
        }
    }

    /// Does the same for a document that can no longer be stored: returns the last body that could.
    async fn past_body<S: Store>(
        &self,
        store: &S,
        id: &DocumentId,
        until: Until,
        through: Mark,
    ) -> Result<Option<Json>> {
        let mut retelling = Retelling::new(self, store, id, until, through).await?;
        let mut last = None;
        while let Some((_, told)) = retelling.next(store).await? {
            match (told, retelling.body()) {
                (Outcome::Folded, Ok(body)) => last = body,
                (Outcome::Waiting, _) => {}
                _ => break,
            }
        }
        Ok(last)
    }
}
