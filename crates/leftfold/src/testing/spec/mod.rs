//! Specifications of projections: given these events, then these documents.
#![expect(clippy::missing_panics_doc, reason = "checks in tests panic where they fail")]
#![expect(clippy::return_self_not_must_use, reason = "a check may be the last thing one says")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write as _};
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use similar::TextDiff;

use super::chaos;
use super::naive::Naive;
use crate::event::{DocumentId, Event, EventId, NewEvent, Partition, Position, Revision, StreamId};
use crate::fold::Projection;
use crate::json::Json;

/// Begins the specification of a projection.
///
/// ```
/// # use leftfold::{Event, Projection, fold};
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # enum Counted { Incremented { by: u64 }, Removed }
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Total { sum: u64 }
/// # struct Totals;
/// # impl Projection for Totals {
/// #     type Event = Counted;
/// #     type Document = Total;
/// #     fn name(&self) -> &str { "totals" }
/// #     fn fold(&self, total: Option<Total>, event: &Event<Counted>) -> Result<Option<Total>, fold::Error> {
/// #         let sum = total.map_or(0, |total| total.sum);
/// #         match event.data {
/// #             Counted::Incremented { by: 0 } => Err("by nothing".into()),
/// #             Counted::Incremented { by } => Ok(Some(Total { sum: sum + by })),
/// #             Counted::Removed => Ok(None),
/// #         }
/// #     }
/// # }
/// use leftfold::testing::spec;
///
/// spec(Totals)
///     .given("a", [Counted::Incremented { by: 2 }, Counted::Incremented { by: 3 }])
///     .given("b", [Counted::Incremented { by: 1 }, Counted::Removed])
///     .then("a", Total { sum: 5 })
///     .then_nothing("b")
///     .holds_under_chaos()
///     .given("a", [Counted::Incremented { by: 0 }])
///     .then_fails("by nothing");
/// ```
pub fn spec<P: Projection>(projection: P) -> Spec<P> {
    Spec {
        projection: Arc::new(projection),
        events: Vec::new(),
        time: Timestamp::constant(1_767_225_600, 0), // 2026-01-01
        failures: BTreeSet::new(),
    }
}

/// A projection with the events it is given, in the order of the log.
///
/// Events are processed as in production: they are encoded, upcast and decoded, unknown types are
/// ignored, and documents are kept as JSON. An event that fails parks its document, or its stream
/// if it can't be routed. A parked document stays as it was, and later events do not change it.
///
/// Every check panics with the expectation, the actual result, and the events that led to it.
#[derive(Debug)]
pub struct Spec<P> {
    projection: Arc<P>,
    events: Vec<Event>,
    time: Timestamp,
    /// The events that are expected to fail.
    failures: BTreeSet<Position>,
}

impl<P: Projection> Spec<P> {
    /// Sets the time of the events given from here on: a [`Timestamp`], or its text, such as
    /// `2026-03-01T09:30:00Z`. The default is the first moment of 2026.
    #[must_use]
    #[track_caller]
    pub fn at(mut self, time: impl Display) -> Self {
        self.time = match time.to_string().parse() {
            Ok(time) => time,
            Err(error) => panic!("{time} is no time such as 2026-03-01T09:30:00Z: {error}"),
        };
        self
    }

    /// Adds the next events of the log, all of one stream.
    #[must_use]
    #[track_caller]
    pub fn given<E: Serialize>(
        mut self,
        stream: impl AsRef<str>,
        events: impl IntoIterator<Item = E>,
    ) -> Self {
        for event in events {
            match NewEvent::encode(&event) {
                Ok(event) => self.append(stream.as_ref(), event),
                Err(invalid) => panic!("{invalid}"),
            }
        }
        self
    }

    /// Does the same as [`given`](Self::given), for events with their own id, time, metadata or raw
    /// data.
    #[must_use]
    #[track_caller]
    pub fn given_events(
        mut self,
        stream: impl AsRef<str>,
        events: impl IntoIterator<Item = NewEvent>,
    ) -> Self {
        for event in events {
            self.append(stream.as_ref(), event);
        }
        self
    }

    /// Checks that the document is this one: the projection's own type, or any value that
    /// serializes to the same JSON.
    #[track_caller]
    pub fn then(self, id: impl AsRef<str>, expected: impl Serialize) -> Self {
        must(self.check(id.as_ref(), Some(&value(&expected))));
        self
    }

    /// Checks that there is no such document: it never existed, or it was deleted.
    #[track_caller]
    pub fn then_nothing(self, id: impl AsRef<str>) -> Self {
        must(self.check(id.as_ref(), None));
        self
    }

    /// Checks that the document is this one, or that there is none. Returns the difference as an
    /// error, for callers that do not want a panic.
    pub fn check(&self, id: &str, expected: Option<&Value>) -> Result<(), String> {
        match (self.bodies()?.get(id), expected) {
            (Some(actual), Some(expected)) => self.compare(&format!("document {id}"), expected, actual),
            (None, Some(_)) => {
                Err(format!("{}: there is no document {id}{}", self.projection.name(), self.story()))
            }
            (Some(actual), None) => {
                let name = self.projection.name();
                let story = self.story();
                Err(format!("{name}: there should be no document {id}, but there is\n\n{actual:#}{story}"))
            }
            (None, None) => Ok(()),
        }
    }

    /// Checks that these are all the documents.
    #[track_caller]
    pub fn then_only<I: AsRef<str>, D: Serialize>(self, expected: impl IntoIterator<Item = (I, D)>) -> Self {
        let expected: Value =
            expected.into_iter().map(|(id, document)| (id.as_ref().to_owned(), value(&document))).collect();
        let actual: Value = must(self.bodies()).into_iter().collect();
        must(self.compare("the collection", &expected, &actual));
        self
    }

    /// Checks that the last event can't be decoded, routed or folded, and that the error contains
    /// this text.
    #[track_caller]
    pub fn then_fails(mut self, text: &str) -> Self {
        must(self.check_fails(text));
        self
    }

    /// Checks that the last event fails with an error that contains this text, and marks it as
    /// expected.
    pub fn check_fails(&mut self, text: &str) -> Result<(), String> {
        let name = self.projection.name();
        let Some(last) = self.events.last().map(|event| event.position) else {
            return Err(format!("{name}: no event is given that could fail"));
        };
        self.failures.insert(last);
        self.bodies()?;
        let failures = self.fold().failures;
        let errors: Vec<_> =
            failures.iter().filter(|(position, _)| *position == last).map(|(_, error)| error).collect();
        let expected = format!("{name}: the last event should fail with {text:?}");
        if errors.is_empty() {
            return Err(format!("{expected}, but does not{}", self.story()));
        }
        if !errors.iter().any(|error| error.contains(text)) {
            return Err(format!("{expected}, but fails with {errors:?}"));
        }
        Ok(())
    }

    /// Returns the current documents by id, for custom checks.
    #[track_caller]
    pub fn documents(&self) -> BTreeMap<String, P::Document> {
        let read = |body| serde_json::from_value(body).expect("the fold has read it back already");
        must(self.bodies()).into_iter().map(|(id, body)| (id, read(body))).collect()
    }

    /// Checks the contract of projections: the documents are the same for any redelivery, any split
    /// into batches, and any interruption. It finds folds that depend on the time, on randomness or
    /// on earlier calls, and documents that do not survive being stored.
    #[track_caller]
    pub fn holds_under_chaos(self) -> Self {
        must(self.check_chaos());
        self
    }

    /// Checks whether the contract [holds under chaos](Self::holds_under_chaos).
    pub fn check_chaos(&self) -> Result<(), String> {
        let naive = self.fold();
        let all = |documents: &BTreeMap<DocumentId, Json>| -> Value {
            documents.iter().map(|(id, body)| (id.to_string(), value(body))).collect()
        };
        let documents: Vec<_> = naive.parked.keys().map(AsRef::as_ref).collect();
        let streams: Vec<_> = naive.parked_streams.keys().map(AsRef::as_ref).collect();
        let parked: [Vec<&str>; 2] = [documents, streams];
        for way in chaos::ways(self.events.len()) {
            let found =
                chaos::fold(&self.projection, &self.events, way).map_err(|error| error.to_string())?;
            self.compare(
                &format!("the collection, given {way},"),
                &all(&naive.documents),
                &all(&found.bodies()),
            )?;
            if found.parked() != parked {
                let (name, story) = (self.projection.name(), self.story());
                let found = found.parked();
                return Err(format!(
                    "{name}: other documents or streams fail, given {way}: {found:?}, not {parked:?}{story}"
                ));
            }
        }
        Ok(())
    }

    #[track_caller]
    fn append(&mut self, stream: &str, event: NewEvent) {
        let stream = match StreamId::new(stream) {
            Ok(stream) => stream,
            Err(invalid) => panic!("{invalid}"),
        };
        let position = self.events.len() as u64 + 1;
        let earlier = self.events.iter().filter(|event| event.stream == stream).count() as u64;
        self.events.push(Event {
            id: event.id.unwrap_or_else(|| EventId::stored(&format!("event-{position}"))),
            stream,
            revision: Revision(earlier + 1),
            kind: event.kind,
            time: event.time.unwrap_or(self.time),
            data: event.data,
            metadata: event.metadata,
            partition: Partition(0),
            position: Position(position),
        });
    }

    fn fold(&self) -> Naive {
        Naive::fold(&*self.projection, &self.events)
    }

    /// Returns the documents, or an error if an event failed unexpectedly.
    fn bodies(&self) -> Result<BTreeMap<String, Value>, String> {
        let Naive { documents, failures, .. } = self.fold();
        let surprise = failures.iter().find(|(position, _)| !self.failures.contains(position));
        if let Some((position, error)) = surprise {
            let name = self.projection.name();
            return Err(format!("{name}: event {position} failed: {error}{}", self.story()));
        }
        Ok(documents.into_iter().map(|(id, body)| (id.to_string(), value(&body))).collect())
    }

    fn compare(&self, what: &str, expected: &Value, actual: &Value) -> Result<(), String> {
        if expected == actual {
            return Ok(());
        }
        let (expected, actual) = (format!("{expected:#}\n"), format!("{actual:#}\n"));
        let difference = TextDiff::from_lines(&expected, &actual);
        let difference = difference.unified_diff().context_radius(5).header("expected", "actual").to_string();
        let name = self.projection.name();
        Err(format!("{name}: {what} is not as expected\n\n{}{}", difference.trim_end(), self.story()))
    }

    /// Returns the events that led here; only the last ones if there are many.
    fn story(&self) -> String {
        const SHOWN: usize = 30;
        let mut story = "\n\nafter these events:\n".to_owned();
        let earlier = self.events.len().saturating_sub(SHOWN);
        if earlier > 0 {
            let _ = writeln!(story, "  … {earlier} earlier ones");
        }
        for event in &self.events[earlier..] {
            let Event { position, stream, kind, data, .. } = event;
            let _ = writeln!(story, "  {position} {stream} {kind} {data:?}");
        }
        story
    }
}

#[track_caller]
fn must<T>(checked: Result<T, String>) -> T {
    match checked {
        Ok(value) => value,
        Err(said) => panic!("{said}"),
    }
}

#[track_caller]
fn value(document: &impl Serialize) -> Value {
    match serde_json::to_value(document) {
        Ok(value) => value,
        Err(error) => panic!("the document does not serialize to JSON: {error}"),
    }
}

#[cfg(test)]
mod tests;
