//! The pure core of the fold: from (documents at hand, events) to (what to write, what failed, what waits).

use std::collections::HashSet;

use foldhash::fast::RandomState;
use jiff::Timestamp;
use serde::Serialize;

use super::decode::{Decoded, decode};
use super::slot::{Effect, Place, Slot};
use super::working::Working;
use super::{Error, Ids, Projection, Route};
use crate::documents::{Collection, Tally, Write};
use crate::error::Result;
use crate::event::{DocumentId, Event, EventId, EventKind, Partition, Position, Revision, StreamId};
use crate::log::Page;
use crate::mark::{Lane, Mark};
use crate::planted::{Bug, planted};

/// A projection as the engine uses it.
pub(crate) struct Folder<P: Projection> {
    pub(crate) projection: P,
    pub(crate) collection: Collection,
    route: Route<P::Event>,
}

/// A page of the log, decoded and routed.
pub(crate) struct Routed<E> {
    pub(crate) partition: Partition,
    pub(crate) through: Position,
    pub(crate) more: bool,
    pub(crate) events: u64,
    ignored: u64,
    pub(super) steps: Vec<Step<E>>,
    /// How many steps are taken.
    taken: usize,
}

/// What one event is to a projection.
pub(super) enum Step<E> {
    Fold(Event<E>, Ids, usize),
    Broken(Event, Error),
}

/// An event without its data: enough to find it again.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Occurrence {
    /// Its stream.
    pub stream: StreamId,
    /// Its place in the stream.
    pub revision: Revision,
    /// Its type.
    pub kind: EventKind,
    /// Its id.
    pub id: EventId,
    /// When it happened.
    pub time: Timestamp,
    /// The partition it is in.
    pub partition: Partition,
    /// Its place there.
    pub position: Position,
}

impl Occurrence {
    pub(super) fn of<D>(event: &Event<D>) -> Self {
        Self {
            stream: event.stream.clone(),
            revision: event.revision,
            kind: event.kind.clone(),
            id: event.id.clone(),
            time: event.time,
            partition: event.partition,
            position: event.position,
        }
    }
}

impl<E> Routed<E> {
    /// How often an event is to be applied to a document.
    pub(crate) fn applications(&self) -> u64 {
        let ids = self.steps.iter().map(|step| match step {
            Step::Fold(_, ids, _) => ids.as_slice().len() as u64,
            Step::Broken(..) => 1,
        });
        ids.sum()
    }
}

/// Everything a fold works on.
pub(crate) struct Desk<D> {
    pub(crate) documents: Working<D>,
    /// Streams that are set aside, where events are not routed by them. A stream that is not here is not parked.
    pub(crate) streams: Working<()>,
    /// Up to where each lane was presented.
    pub(crate) progress: Mark,
    /// Whether to keep what is needed to park a document at once: for repairs, which are rare.
    pub(crate) careful: bool,
    /// Whether some document has to be folded anew before the batch can end.
    pub(crate) suspect: bool,
    /// What was counted and belongs to no single document.
    pub(crate) tally: Tally,
    /// The first event that could not be routed though its stream is not set aside for it, and why.
    pub(crate) stray: Option<String>,
    /// Where documents are folded from their first event on: streams that are being taken up again count as not set
    /// aside, and this is up to where their events waited.
    pub(crate) taken_up: Option<Mark>,
}

impl<D> Desk<D> {
    pub(crate) fn new(progress: Mark, cache_bytes: usize) -> Self {
        Self {
            documents: Working::new(cache_bytes),
            streams: Working::new(cache_bytes / 8),
            progress,
            careful: false,
            suspect: false,
            tally: Tally::default(),
            stray: None,
            taken_up: None,
        }
    }

    /// Works only on what is put on it, and keeps what is needed to park.
    pub(crate) fn careful(progress: Mark) -> Self {
        Self { careful: true, ..Self::new(progress, usize::MAX) }
    }

    /// What has to be written of the streams that events were set aside for.
    pub(crate) fn set_aside(&mut self) -> Vec<Write> {
        self.streams.cut().unwrap_or_default().writes
    }
}

impl<P: Projection> Folder<P> {
    pub(crate) fn new(projection: P) -> Result<Self> {
        let collection = Collection::new(projection.name())?;
        let route = projection.route();
        Ok(Self { projection, collection, route })
    }

    /// The same projection, in one generation of its collection.
    pub(crate) fn of_generation(projection: P, number: u32) -> Result<Self> {
        let folder = Self::new(projection)?;
        Ok(Self { collection: folder.collection.generation(number), ..folder })
    }

    pub(crate) fn routes_by_stream(&self) -> bool {
        matches!(self.route, Route::Stream)
    }

    /// Lifts, decodes and routes a page.
    pub(crate) fn route(&self, partition: Partition, page: Page) -> Routed<P::Event> {
        let mut routed = Routed {
            partition,
            through: page.through,
            more: page.more,
            events: page.events.len() as u64,
            ignored: 0,
            steps: Vec::with_capacity(page.events.len()),
            taken: 0,
        };
        for event in page.events {
            match self.understand(event) {
                Some(step) => routed.steps.push(step),
                None => routed.ignored += 1,
            }
        }
        routed
    }

    /// What an event is to the projection, whose code may panic: then it can't be decoded.
    fn understand(&self, event: Event) -> Option<Step<P::Event>> {
        let (id, stream, kind) = (event.id.clone(), event.stream.clone(), event.kind.clone());
        let Event { revision, time, partition, position, .. } = event;
        let step = Error::catch("decoding or routing it", || Ok(self.step(event)));
        step.unwrap_or_else(|error| {
            let data = crate::Json::stored("null");
            let event = Event { id, stream, revision, kind, time, data, metadata: None, partition, position };
            Some(Step::Broken(event, error))
        })
    }

    fn step(&self, event: Event) -> Option<Step<P::Event>> {
        let bytes = event.data.as_str().len();
        let event = self.projection.upcast(event);
        if !self.projection.concerns(&event.kind) {
            return None;
        }
        let event = match decode(event) {
            Decoded::Known(event) => event,
            Decoded::Ignored => return None,
            Decoded::Broken(event, error) => return Some(Step::Broken(event, Error::new(error))),
        };
        match &self.route {
            Route::Stream => {
                let ids = Ids::stream(&event);
                Some(Step::Fold(event, ids, bytes))
            }
            Route::By(route) => match route(&event) {
                Ok(ids) => Some(Step::Fold(event, ids, bytes)),
                Err(error) => {
                    let error = Error::new(format!("can't route {}: {error}", event.kind));
                    Some(Step::Broken(event.with_data(crate::Json::stored("null")), error))
                }
            },
        }
    }

    /// The documents an event belongs to, or why that can't be told.
    pub(crate) fn documents_of(&self, event: Event) -> Result<Ids, Error> {
        self.concern(event).unwrap_or_else(|| Ok(Ids::none()))
    }

    /// The same; `None` if the projection passes it over.
    pub(super) fn concern(&self, event: Event) -> Option<Result<Ids, Error>> {
        Some(match self.understand(event)? {
            Step::Fold(_, ids, _) => Ok(ids),
            Step::Broken(_, error) => Err(error),
        })
    }

    /// The documents a page needs that are not at hand, in order of need.
    pub(crate) fn missing(&self, desk: &Desk<P::Document>, page: &Routed<P::Event>) -> Vec<DocumentId> {
        let mut seen = HashSet::with_hasher(RandomState::default());
        let mut missing = Vec::new();
        let mut need = |id: &DocumentId| {
            if !desk.documents.contains(id) && seen.insert(id.clone()) {
                missing.push(id.clone());
            }
        };
        for step in &page.steps {
            match step {
                Step::Fold(_, ids, _) => ids.as_slice().iter().for_each(&mut need),
                Step::Broken(event, _) if self.routes_by_stream() => need(&DocumentId::from(&event.stream)),
                Step::Broken(..) => {}
            }
        }
        missing
    }

    /// The streams a page needs to know about that are not at hand: all, if some are parked; else those with an
    /// event that can't be decoded.
    pub(crate) fn missing_streams(
        &self,
        desk: &Desk<P::Document>,
        page: &Routed<P::Event>,
        some_parked: bool,
    ) -> Vec<DocumentId> {
        if self.routes_by_stream() {
            return Vec::new();
        }
        let mut seen = HashSet::with_hasher(RandomState::default());
        let streams = page.steps.iter().filter_map(|step| match step {
            Step::Fold(event, ..) if some_parked => Some(&event.stream),
            Step::Broken(event, _) => Some(&event.stream),
            Step::Fold(..) => None,
        });
        streams
            .map(DocumentId::from)
            .filter(|id| !desk.streams.contains(id) && seen.insert(id.clone()))
            .collect()
    }

    /// Folds a page into the documents at hand, at most so many events of it; whether that was all. Documents that
    /// are not at hand are left alone.
    pub(crate) fn apply(
        &self,
        desk: &mut Desk<P::Document>,
        page: &mut Routed<P::Event>,
        most: usize,
        now: Timestamp,
    ) -> bool {
        let lane = Lane::from(page.partition);
        desk.tally.events += std::mem::take(&mut page.events);
        desk.tally.ignored += std::mem::take(&mut page.ignored);
        let until = page.taken.saturating_add(most).min(page.steps.len());
        for step in &page.steps[page.taken..until] {
            let number = match step {
                Step::Fold(event, ids, bytes) => {
                    self.fold_into(desk, (&lane, event.position.0, now), event, ids, *bytes);
                    event.position.0
                }
                Step::Broken(event, error) => {
                    self.set_aside(desk, (&lane, event.position.0, now), event, error);
                    event.position.0
                }
            };
            desk.progress.advance(&lane, number);
        }
        page.taken = until;
        let done = until == page.steps.len();
        if done {
            desk.progress.advance(&lane, page.through.0);
        }
        done
    }

    fn fold_into(
        &self,
        desk: &mut Desk<P::Document>,
        (lane, number, now): (&Lane, u64, Timestamp),
        event: &Event<P::Event>,
        ids: &Ids,
        bytes: usize,
    ) {
        let place = Place { lane, number, before: &desk.progress, now };
        if !self.routes_by_stream() && waits(&mut desk.streams, place, event) {
            return;
        }
        for id in ids.as_slice() {
            let Some(slot) = desk.documents.touch(id, bytes) else { continue };
            match slot.fold(place, event, desk.careful, |document| self.fold(document, event)) {
                Effect::Skipped => desk.tally.skipped += 1,
                Effect::Failed => desk.suspect = true,
                Effect::Applied | Effect::SetAside => {}
            }
        }
    }

    /// An event that can't be decoded or routed stops its document, or its stream where the route is not the stream.
    fn set_aside(
        &self,
        desk: &mut Desk<P::Document>,
        (lane, number, now): (&Lane, u64, Timestamp),
        event: &Event,
        error: &Error,
    ) {
        let place = Place { lane, number, before: &desk.progress, now };
        let id = DocumentId::from(&event.stream);
        if self.routes_by_stream() {
            let failed = desk.documents.touch(&id, 0).map(|slot| slot.fail(place, event, error));
            desk.suspect |= failed == Some(Effect::Failed);
        } else if !waits(&mut desk.streams, place, event) {
            if desk.stray.is_none() {
                let said = format!("{error} (revision {} of {})", event.revision, event.stream);
                desk.stray = Some(said);
            }
            if !desk.streams.contains(&id) {
                desk.streams.insert(id.clone(), Slot::absent());
            }
            if let Some(slot) = desk.streams.touch(&id, 0) {
                slot.fail(place, event, error);
                slot.park(1);
            }
        }
    }

    /// The user's fold. A panic is a failure like any other.
    pub(super) fn fold(
        &self,
        document: Option<P::Document>,
        event: &Event<P::Event>,
    ) -> Result<Option<P::Document>, Error> {
        Error::catch("the fold", || self.projection.fold(document, event))
    }
}

/// Whether the event's stream is set aside at this place; if so the event waits with it.
fn waits<E>(streams: &mut Working<()>, place: Place<'_>, event: &Event<E>) -> bool {
    if streams.is_empty() {
        return false;
    }
    let id = DocumentId::from(&event.stream);
    let parked = streams.get(&id).and_then(Slot::parked);
    if parked.is_none_or(|parked| event.position < parked.position) || planted(Bug::ParkAndGoOn) {
        return false;
    }
    if let Some(slot) = streams.touch(&id, 0) {
        slot.set_aside(place);
    }
    true
}
