//! Changed documents, as an event stream.
//!
//! The log is read page by page. Each document that a page changed is sent once, at the last of its
//! events in the page, with its state at that time.

use std::collections::{HashMap, VecDeque};

use axum::extract::State;
use axum::http::HeaderMap;
use leftfold::{Collection, DocumentId, Event, Json, Partition, Position};
use serde::Deserialize;
use serde_json::json;

use super::extract::{Named, Params, known};
use super::place::Place;
use super::sse::{self, Feed, FeedStep, last_event_id};
use super::{Answer, Operation};
use crate::access::Scope;
use crate::problem::Problem;
use crate::{Backend, Shared};

pub(super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    vec![
        Operation::get(
            "/collections/{collection}/changes",
            "watchCollection",
            "Stream the changed documents of a collection",
            watch::<S>,
        )
        .scope(Scope::Read)
        .query(
            "after",
            "The place in the log to resume from: the id of a message; the end of the log by default",
            "string",
        )
        .header("Last-Event-ID", "The id of the last received message; overrides `after`")
        .answers(
            200,
            "text/event-stream",
            "Messages `changed` with {id, document}. The document is null if it was deleted. A message \
             `leftfold-heartbeat` comes first, and after 15 silent seconds. A client can resume after the \
             id of any message",
        ),
    ]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Watch {
    after: Option<String>,
}

async fn watch<S: Backend>(
    State(shared): State<Shared<S>>,
    Named(collection): Named<String>,
    Params(params): Params<Watch>,
    headers: HeaderMap,
) -> Answer {
    let collection = known(&shared, &collection)?;
    let after = last_event_id(&headers).or(params.after).unwrap_or_else(|| "end".to_owned());
    let (after, part) = Part::split(&after)?;
    let place = Place::named(Some(&after), &shared).await?;
    let changes = Changes { shared: shared.clone(), collection, place, part, unsent: VecDeque::new() };
    sse::respond(shared, changes.place(), changes)
}

/// The documents of one event that were sent before the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    partition: usize,
    /// The number of documents sent, in the order of their ids. The event is the next one of the
    /// partition.
    documents: usize,
}

impl Part {
    /// Splits `17-3+2` into the place `17-3` and the part of the event after it in the second
    /// partition.
    fn split(text: &str) -> Result<(String, Option<Self>), Problem> {
        let mut parts = Vec::new();
        let positions: Vec<_> = text
            .split('-')
            .enumerate()
            .map(|(partition, position)| match position.split_once('+') {
                None => position,
                Some((position, documents)) => {
                    parts.push((partition, documents));
                    position
                }
            })
            .collect();
        let part = match parts[..] {
            [(partition, documents)] => documents.parse().ok().map(|documents| Self { partition, documents }),
            _ => None,
        };
        if part.is_none() && !parts.is_empty() {
            return Err(Problem::invalid(format!(
                "{text:?} is not a place in this log; use the id of a message"
            )));
        }
        Ok((positions.join("-"), part))
    }
}

/// The changes of a collection.
struct Changes<S: Backend> {
    shared: Shared<S>,
    collection: Collection,
    /// The place up to which all documents are sent, or are in `unsent`.
    place: Place,
    part: Option<Part>,
    /// The documents of the last page that are not sent yet.
    unsent: VecDeque<Unsent>,
}

/// An item of a page that is not sent yet.
enum Unsent {
    /// A document, at its last event in the page.
    Document { id: DocumentId, partition: Partition, at: Position, part: Option<Part> },
    /// The end of the page.
    End(Place),
}

impl<S: Backend> Changes<S> {
    fn place(&self) -> String {
        self.place.with_part(self.part.map(|part| (part.partition, part.documents)))
    }

    /// Reads a page, and waits until it is folded.
    async fn read(&mut self) -> Result<(), Problem> {
        let store = self.shared.app.store();
        loop {
            let mut end = self.place.clone();
            let (events, _) = end.read(&self.shared, sse::PAGE).await?;
            if events.is_empty() {
                store.grown(&end.mark()).await?;
                continue;
            }
            let mut routed = Vec::with_capacity(events.len());
            for event in events {
                routed.push(self.routed(event)?);
            }
            let mut at = store.checkpoint(&self.collection).await?.mark;
            while !at.covers(&end.mark()) {
                at = store.advanced(&self.collection, &at).await?;
            }
            self.unsent = last_of_each(routed, self.part);
            self.unsent.push_back(Unsent::End(end));
            return Ok(());
        }
    }

    fn routed(&self, event: Event) -> Result<Routed, Problem> {
        let (partition, at) = (event.partition, event.position);
        let mut ids = self.shared.app.documents_of(self.collection.as_str(), event)?;
        ids.sort_unstable();
        ids.dedup();
        Ok(Routed { partition, at, ids })
    }
}

impl<S: Backend> Feed for Changes<S> {
    async fn next(&mut self) -> Result<FeedStep, Problem> {
        loop {
            match self.unsent.pop_front() {
                None => self.read().await?,
                Some(Unsent::End(end)) => {
                    (self.place, self.part) = (end, None);
                    return Ok(FeedStep::Moved { place: self.place() });
                }
                Some(Unsent::Document { id, partition, at, part }) => {
                    // Load one at a time: a document can be large.
                    let found =
                        self.shared.app.store().load_current(&self.collection, vec![id.clone()]).await?;
                    let document = found.into_iter().next().and_then(|record| record.body);
                    let damage = document.as_ref().and_then(Json::damage).map(|fault| fault.to_string());
                    let data = match &damage {
                        None => json!({ "id": id }),
                        Some(damaged) => json!({ "id": id, "damaged": damaged }),
                    };
                    let data = data.to_string();
                    // Send the body as stored, if it can be parsed.
                    let document = document.as_ref().filter(|_| damage.is_none());
                    let body = document.map_or("null", Json::as_str);
                    let data = format!("{},\"document\":{body}}}", data.trim_end_matches('}'));
                    self.place.pass(partition, at);
                    self.part = part;
                    return Ok(FeedStep::Message { place: self.place(), kind: "changed".to_owned(), data });
                }
            }
        }
    }
}

/// An event and the documents it belongs to, by id.
struct Routed {
    partition: Partition,
    at: Position,
    ids: Vec<DocumentId>,
}

/// Returns each document once, at its last event, in the order of the events. Documents of the
/// first event that were sent already are left out.
fn last_of_each(routed: Vec<Routed>, sent: Option<Part>) -> VecDeque<Unsent> {
    let mut last = HashMap::new();
    for (number, routed) in routed.iter().enumerate() {
        for id in &routed.ids {
            last.insert(id.clone(), number);
        }
    }
    let mut left = VecDeque::with_capacity(last.len() + 1);
    let mut sent = sent;
    for (number, Routed { partition, at, ids }) in routed.into_iter().enumerate() {
        let index = usize::from(partition.0);
        let before = sent.take_if(|sent| sent.partition == index).map_or(0, |sent| sent.documents);
        let all = ids.into_iter().enumerate().skip(before);
        let mut due: Vec<_> = all.filter(|(_, id)| last.get(id) == Some(&number)).collect();
        let end = due.pop();
        left.extend(due.into_iter().map(|(nth, id)| {
            let part = Some(Part { partition: index, documents: nth + 1 });
            Unsent::Document { id, partition, at: Position(at.0.saturating_sub(1)), part }
        }));
        left.extend(end.map(|(_, id)| Unsent::Document { id, partition, at, part: None }));
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(left: &VecDeque<Unsent>) -> Vec<String> {
        let shown = left.iter().map(|left| match left {
            Unsent::Document { id, partition, at, part } => {
                let part = part.map_or(String::new(), |part| format!("+{}", part.documents));
                format!("{id} {partition}:{at}{part}")
            }
            Unsent::End(_) => "end".to_owned(),
        });
        shown.collect()
    }

    fn routed(partition: u16, at: u64, ids: &[&str]) -> Routed {
        let ids = ids.iter().map(|id| DocumentId::new(id).unwrap()).collect();
        Routed { partition: Partition(partition), at: Position(at), ids }
    }

    #[test]
    fn a_document_is_told_at_its_last_event() {
        let page = || vec![routed(0, 1, &["a", "b", "c"]), routed(0, 2, &["b"]), routed(1, 7, &["c", "d"])];
        assert_eq!(told(&last_of_each(page(), None)), ["a 0:1", "b 0:2", "c 1:6+1", "d 1:7"]);
        let part = Part { partition: 1, documents: 1 };
        assert_eq!(told(&last_of_each(page(), Some(part))), ["a 0:1", "b 0:2", "d 1:7"]);
    }

    #[test]
    fn a_place_within_an_event_is_read_back() {
        let part = Part { partition: 1, documents: 200_000 };
        assert_eq!(Part::split("17-3+200000").unwrap(), ("17-3".to_owned(), Some(part)));
        assert_eq!(Part::split("end").unwrap(), ("end".to_owned(), None));
        for wrong in ["1+", "1+1-2+2", "1+-1", "1+a"] {
            assert!(Part::split(wrong).is_err(), "{wrong}");
        }
    }
}
