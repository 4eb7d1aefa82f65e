//! The trigger of a reaction to documents: it selects documents and their watched values.

use jiff::Timestamp;
use leftfold_filter::{Filter, Paths};
use serde::de::DeserializeOwned;

use super::every::Every;
use crate::error::Invalid;
use crate::json::Json;
use crate::react::store::Body;
use crate::react::task::Observation;

pub(super) type When<D> = Box<dyn Fn(&D) -> bool + Send + Sync>;
pub(super) type Watch<D> = Box<dyn Fn(&D) -> Result<Json, Invalid> + Send + Sync>;
pub(super) type AgainAt<D> = Box<dyn Fn(&D, Timestamp) -> Option<Timestamp> + Send + Sync>;

/// The conditions on a document, and the values whose change counts.
pub(super) struct Trigger<D> {
    pub(super) filter: Option<Filter>,
    pub(super) when: Option<When<D>>,
    pub(super) again_at: Option<AgainAt<D>>,
    pub(super) watch: Option<Watch<D>>,
    pub(super) paths: Option<Paths>,
    /// The version of the closures.
    pub(super) version: u32,
}

impl<D> Default for Trigger<D> {
    fn default() -> Self {
        Self { filter: None, when: None, again_at: None, watch: None, paths: None, version: 1 }
    }
}

impl<D> Trigger<D> {
    /// Returns the trigger as text, as far as it can be described.
    pub(super) fn text(&self, every: Option<&Every>) -> String {
        let text = serde_json::json!({
            "every": every.map(Every::text),
            "filter": self.filter,
            "paths": self.paths,
            "when": self.when.is_some(),
            "watch": self.watch.is_some(),
            "trigger": self.version,
        });
        text.to_string()
    }
}

impl<D: DeserializeOwned> Trigger<D> {
    /// Evaluates a document. Also returns the time at which the result may differ although the
    /// document does not change.
    pub(super) fn observe(&self, body: &Body, now: Timestamp) -> (Observation, Option<Timestamp>) {
        let document = body.json();
        let mut check_at = None;
        if let Some(filter) = &self.filter {
            let value = match body.value() {
                Ok(value) => value,
                Err(error) => return (Observation::Unreadable(error.to_string()), None),
            };
            check_at = filter.changes_at(&value, now);
            if !filter.matches(&value, now) {
                return (Observation::Outside, check_at);
            }
        }
        // If the document has another type, the handler runs and fails: operators look at its error
        // first.
        let Ok(typed) = self.is_typed().then(|| document.to::<D>()).transpose() else {
            return (Observation::Inside(document.clone()), check_at);
        };
        if let Some(typed) = &typed {
            let again_at = self.again_at.as_ref().and_then(|again_at| again_at(typed, now));
            check_at = [check_at, again_at.filter(|at| *at > now)].into_iter().flatten().min();
            if self.when.as_ref().is_some_and(|when| !when(typed)) {
                return (Observation::Outside, check_at);
            }
        }
        let watched = match (&self.watch, &typed, &self.paths) {
            (Some(watch), Some(typed), _) => watch(typed),
            (_, _, Some(paths)) => body.value().and_then(|value| Json::of(&paths.values(&value))),
            _ => Ok(document.clone()),
        };
        (Observation::Inside(watched.unwrap_or_else(|_| document.clone())), check_at)
    }

    fn is_typed(&self) -> bool {
        self.when.is_some() || self.again_at.is_some() || self.watch.is_some()
    }
}
