//! The reference for all comparisons: the simplest possible fold.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::event::{DocumentId, Event, Position, StreamId};
use crate::fold::{Decoded, DocumentIds, Projection, Route, decode};
use crate::json::Json;

/// A fold of one event after the other that reads and writes every document as JSON.
#[derive(Debug, Default)]
pub(crate) struct Naive {
    /// The documents.
    pub(crate) documents: BTreeMap<DocumentId, Json>,
    /// The parked documents, with the event at which they failed.
    pub(crate) parked: BTreeMap<DocumentId, Position>,
    /// The streams with an event that could not be routed.
    pub(crate) parked_streams: BTreeMap<StreamId, Position>,
    /// Every event that failed, with its error.
    pub(crate) failures: Vec<(Position, String)>,
}

impl Naive {
    pub(crate) fn fold<P: Projection>(projection: &P, events: &[Event]) -> Self {
        let mut naive = Self::default();
        let route = projection.route();
        for event in events {
            if naive.parked_streams.contains_key(&event.stream) {
                continue;
            }
            let event = projection.upcast(event.clone());
            if !projection.concerns(&event.kind) {
                continue;
            }
            let event = match decode::<P::Event>(event) {
                Decoded::Known(event) => event,
                Decoded::Ignored => continue,
                Decoded::Broken(event, error) => {
                    match route {
                        Route::Stream => naive.park((&event.stream).into(), event.position, error),
                        Route::By(_) => naive.park_stream(event.stream, event.position, error),
                    }
                    continue;
                }
            };
            let ids = match &route {
                Route::Stream => Ok(DocumentIds::stream(&event)),
                Route::By(route) => route(&event),
            };
            match ids {
                Ok(ids) => ids.as_slice().iter().for_each(|id| naive.apply(projection, id, &event)),
                Err(invalid) => naive.park_stream(event.stream, event.position, invalid.to_string()),
            }
        }
        naive
    }

    fn apply<P: Projection>(&mut self, projection: &P, id: &DocumentId, event: &Event<P::Event>) {
        if self.parked.contains_key(id) {
            return;
        }
        match next(projection, self.documents.get(id), event) {
            Ok(Some(body)) => {
                self.documents.insert(id.clone(), body);
            }
            Ok(None) => {
                self.documents.remove(id);
            }
            Err(error) => self.park(id.clone(), event.position, error),
        }
    }

    fn park(&mut self, id: DocumentId, position: Position, error: String) {
        if let Entry::Vacant(parked) = self.parked.entry(id) {
            parked.insert(position);
            self.failures.push((position, error));
        }
    }

    fn park_stream(&mut self, stream: StreamId, position: Position, error: String) {
        self.parked_streams.insert(stream, position);
        self.failures.push((position, error));
    }
}

/// Returns the next body of a document, which must deserialize again.
fn next<P: Projection>(
    projection: &P,
    body: Option<&Json>,
    event: &Event<P::Event>,
) -> Result<Option<Json>, String> {
    let unreadable = |invalid| format!("the document can't be read back: {invalid}");
    let document = body.map(Json::to::<P::Document>).transpose().map_err(unreadable)?;
    let Some(document) = projection.fold(document, event).map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    let body = Json::of(&document).map_err(|invalid| invalid.to_string())?;
    body.to::<P::Document>().map_err(unreadable)?;
    Ok(Some(body))
}
