//! A projection as the engine uses it: it decodes events, routes them and folds them.

use std::sync::Arc;

use super::decode::{Decoded, decode};
use super::folding::Folding;
use super::routed::{Routed, Step};
use super::{DocumentIds, Error, Projection, Route, threads};
use crate::documents::Collection;
use crate::error::{Invalid, Result};
use crate::event::{Event, Partition};
use crate::log::LogPage;

/// A projection as the engine uses it.
pub(crate) struct Folder<P: Projection> {
    pub(crate) projection: P,
    pub(crate) collection: Collection,
    route: Route<P::Event>,
    /// The event that is being folded.
    pub(crate) folding: Arc<Folding>,
}

impl<P: Projection> Folder<P> {
    pub(crate) fn new(projection: P) -> Result<Self> {
        let collection = Collection::new(projection.name())?;
        let route = projection.route();
        Ok(Self { projection, collection, route, folding: Arc::default() })
    }

    /// Creates the same projection for one generation of its collection.
    pub(crate) fn of_generation(projection: P, number: u32) -> Result<Self> {
        let folder = Self::new(projection)?;
        Ok(Self { collection: folder.collection.generation(number), ..folder })
    }

    pub(crate) fn routes_by_stream(&self) -> bool {
        matches!(self.route, Route::Stream)
    }

    /// Upcasts, decodes and routes a page.
    pub(crate) fn route(&self, partition: Partition, page: LogPage) -> Routed<P::Event> {
        threads::blocking(|| self.route_here(partition, page))
    }

    fn route_here(&self, partition: Partition, page: LogPage) -> Routed<P::Event> {
        let mut routed = Routed {
            partition,
            through: page.through,
            more: page.more,
            events: page.events.len() as u64,
            ignored: 0,
            steps: Vec::with_capacity(page.events.len()),
            taken: 0,
        };
        if let (Some(bulk), Route::By(_)) = (self.projection.bulk(), &self.route) {
            let decoded = page.events.into_iter().filter_map(|event| self.understand(event, Self::decoded));
            let mut steps: Vec<_> = decoded.collect();
            let events = steps.iter().filter_map(Step::event).collect::<Vec<_>>();
            let answers = Error::catch("routing", || Ok(bulk.route(&events)));
            let mut answers = answers.unwrap_or_default().into_iter();
            steps = steps.into_iter().map(|step| routed_by(step, |_| answers.next())).collect();
            routed.ignored = routed.events - steps.len() as u64;
            routed.steps = steps;
            return routed;
        }
        for event in page.events {
            match self.understand(event, Self::step) {
                Some(step) => routed.steps.push(step),
                None => routed.ignored += 1,
            }
        }
        routed
    }

    /// Runs the projection's code on an event. If the code panics, the event counts as undecodable.
    fn understand(
        &self,
        event: Event,
        step: impl FnOnce(&Self, Event) -> Option<Step<P::Event>>,
    ) -> Option<Step<P::Event>> {
        let (id, stream, kind) = (event.id.clone(), event.stream.clone(), event.kind.clone());
        let Event { revision, time, partition, position, .. } = event;
        let step = Error::catch("decoding or routing it", || Ok(step(self, event)));
        step.unwrap_or_else(|error| {
            let data = crate::Json::stored("null");
            let event = Event { id, stream, revision, kind, time, data, metadata: None, partition, position };
            Some(Step::Broken(event, error))
        })
    }

    /// Decodes an event, without routing it.
    fn decoded(&self, event: Event) -> Option<Step<P::Event>> {
        let bytes = event.data.as_str().len();
        let event = self.projection.upcast(event);
        if !self.projection.concerns(&event.kind) {
            return None;
        }
        match decode(event) {
            Decoded::Known(event) => Some(Step::Fold(event, DocumentIds::none(), bytes)),
            Decoded::Ignored => None,
            Decoded::Broken(event, error) => Some(Step::Broken(event, Error::new(error))),
        }
    }

    fn step(&self, event: Event) -> Option<Step<P::Event>> {
        Some(routed_by(self.decoded(event)?, |event| match &self.route {
            Route::Stream => Some(Ok(DocumentIds::stream(event))),
            Route::By(route) => Some(route(event)),
        }))
    }

    /// Returns the documents an event belongs to, or the reason why it can't be routed.
    pub(crate) fn documents_of(&self, event: Event) -> Result<DocumentIds, Error> {
        self.concern(event).unwrap_or_else(|| Ok(DocumentIds::none()))
    }

    /// Does the same, but returns `None` if the projection ignores the event.
    pub(crate) fn concern(&self, event: Event) -> Option<Result<DocumentIds, Error>> {
        Some(match threads::blocking(|| self.understand(event, Self::step))? {
            Step::Fold(_, ids, _) => Ok(ids),
            Step::Broken(_, error) => Err(error),
        })
    }

    /// Runs the user's fold. A panic counts as a failure.
    pub(crate) fn fold(
        &self,
        document: Option<P::Document>,
        event: &Event<P::Event>,
    ) -> Result<Option<P::Document>, Error> {
        threads::blocking(|| Error::catch("the fold", || self.projection.fold(document, event)))
    }
}

/// Adds the ids of the documents that a decoded event belongs to.
fn routed_by<E>(
    step: Step<E>,
    route: impl FnOnce(&Event<E>) -> Option<Result<DocumentIds, Invalid>>,
) -> Step<E> {
    let Step::Fold(event, _, bytes) = step else { return step };
    let error = match route(&event) {
        Some(Ok(ids)) => return Step::Fold(event, ids, bytes),
        Some(Err(error)) => error.to_string(),
        None => "the projection returned no route".to_owned(),
    };
    let error = Error::new(format!("can't route {}: {error}", event.kind));
    Step::Broken(event.with_data(crate::Json::stored("null")), error)
}
