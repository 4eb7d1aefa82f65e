//! The checks: the expected documents and failures.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;
use similar::TextDiff;

use super::Spec;
use crate::event::{DocumentId, Event};
use crate::fold::Projection;
use crate::json::Json;
use crate::testing::chaos;
use crate::testing::naive::Naive;

impl<P: Projection> Spec<P> {
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
                Err(format!("{name}: document {id} should not exist, but does\n\n{actual:#}{story}"))
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
