//! Folding and routing many events in one call of a worker process.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use leftfold::fold::{self, Bulk, DocumentIds, Folded, Upcoming};
use leftfold::{Event, Invalid, Json};

use crate::ScriptFault;
use crate::event::text;
use crate::remote::{Extent, Item, Remote};
use crate::wire::Record;

/// Only scripts in worker processes gain from folding many at a time.
impl Bulk<Json, Json> for Remote {
    fn route(&self, events: &[&Event<Json>]) -> Vec<Result<DocumentIds, Invalid>> {
        let texts: Result<Vec<_>, _> = events.iter().map(|event| text(event)).collect();
        let routed = texts
            .map_err(|error| ScriptFault::new(error.to_string()))
            .and_then(|texts| Self::route(self, &texts.iter().map(String::as_str).collect::<Vec<_>>()));
        match routed {
            Ok(routed) => {
                let ids = routed.into_iter().map(|record| ids(Some(record)));
                ids.map(|ids| ids.map_err(|fault| unroutable(&fault)).and_then(DocumentIds::many)).collect()
            }
            Err(fault) => events.iter().map(|_| Err(unroutable(&fault))).collect(),
        }
    }

    fn fold(
        &self,
        folds: &[Upcoming<'_, Json, Json>],
        least: usize,
        time: Duration,
    ) -> Vec<Option<Folded<Json>>> {
        let texts: Result<Vec<_>, _> = folds.iter().map(|fold| text(fold.event)).collect();
        // Events without a result here are folded one by one, and fail there.
        let Ok(texts) = texts else { return Vec::new() };
        let mut keys = HashMap::new();
        let items = folds.iter().zip(&texts).map(|(fold, event)| {
            let next = u32::try_from(keys.len()).unwrap_or(u32::MAX);
            let key = *keys.entry(fold.id).or_insert(next);
            Item { key, document: fold.document.map(Json::as_str), kind: fold.event.kind.as_str(), event }
        });
        let items: Vec<_> = items.collect();
        match Self::fold(self, &items, Extent { least, time }) {
            Ok(records) => records.into_iter().map(folded_by).collect(),
            Err(fault) => {
                tracing::debug!(%fault, "folding ahead failed");
                Vec::new()
            }
        }
    }
}

pub(crate) fn unroutable(error: &dyn fmt::Display) -> Invalid {
    Invalid::new("route", "", error.to_string())
}

pub(crate) fn failed(fault: ScriptFault) -> fold::Error {
    fold::Error::new(fault.message)
}

pub(crate) fn unanswered() -> fold::Error {
    fold::Error::new("the worker returned no result")
}

/// Returns the ids in a worker's response.
pub(crate) fn ids(record: Option<Record>) -> Result<Vec<String>, ScriptFault> {
    match record {
        Some(Record::Ids(ids)) => Ok(ids),
        Some(Record::Fault(fault)) => Err(fault),
        _ => Err(ScriptFault::new("the worker returned no ids".to_owned())),
    }
}

/// Returns the fold in a worker's response, or `None` if it was not computed.
pub(crate) fn folded_by(record: Record) -> Option<Folded<Json>> {
    match record {
        Record::Document(text) => Some(Ok(Some(Json::stored(text)))),
        Record::Nothing => Some(Ok(None)),
        Record::Fault(fault) => Some(Err(failed(fault))),
        Record::Skipped => None,
        Record::Loaded(_) | Record::Ids(_) | Record::End(_) => Some(Err(unanswered())),
    }
}
