//! The naive fold of a document's events, and its comparison with the stored document.

use std::collections::{BTreeMap, BTreeSet};

use leftfold::documents::Record;
use leftfold::{Collection, DocumentId, Mark, Position};

use super::collections::projection;
use super::state::State;
use crate::notes::FoldedEvents;

/// Parked streams, each with its first parked position.
pub(super) type ParkedStreams = BTreeMap<String, Position>;

impl State {
    /// Returns the expected events of a document: the fold of its events up to a mark, without
    /// parked streams.
    pub(super) fn naive(
        &self,
        projection: &'static str,
        id: &DocumentId,
        upto: &Mark,
        parked_streams: &ParkedStreams,
    ) -> Vec<String> {
        let mut listed = Vec::new();
        for step in self.routed.get(&(projection, id.clone())).into_iter().flatten() {
            let waits = parked_streams.get(&step.stream).is_some_and(|from| step.position >= *from);
            if waits || step.position > upto.position(step.partition) {
                continue;
            }
            if step.clears {
                listed.clear();
            } else {
                listed.push(step.name.clone());
            }
        }
        listed
    }

    /// Checks that a document is the fold of its events up to its mark.
    ///
    /// Of a parked stream it may contain the first events or all: some worker could decode them, or
    /// the stream is being retried. A document that waits for a refold may lack the last events of
    /// each stream, but none before them.
    pub(super) fn check_fold(
        &mut self,
        collection: &Collection,
        record: &Record,
        parked_streams: &ParkedStreams,
    ) {
        let Some(projection) = projection(collection) else { return };
        let (now, mark) = (listed(record), &record.header.mark);
        let expected = self.naive(projection, &record.id, mark, parked_streams);
        if same(&expected, &now, &self.read_up_to) {
            return;
        }
        if record.header.parked.as_ref().is_some_and(|parked| parked.anew) {
            let steps =
                self.routed.get(&(projection, record.id.clone())).map(Vec::as_slice).unwrap_or_default();
            let all = by_stream(steps.iter().map(|step| &step.name));
            let begins = |(stream, names): (&str, Vec<&String>)| {
                all.get(stream).is_some_and(|all| all.starts_with(&names))
            };
            if steps.iter().any(|step| step.clears) || by_stream(&now).into_iter().all(begins) {
                return;
            }
        }
        if self
            .cuts(projection, &record.id, &now, parked_streams)
            .iter()
            .any(|cut| same(&self.naive(projection, &record.id, mark, cut), &now, &self.read_up_to))
        {
            return;
        }
        let id = &record.id;
        self.violations
            .push(format!("I1: {id} in {collection} at {mark} is {now:?} and should be {expected:?}"));
    }

    /// Returns the possible ends of the events that a document contains of parked streams. Only
    /// some ends make a difference: where the stream is parked, or after an event that is listed
    /// last or cleared the document.
    fn cuts(
        &self,
        projection: &'static str,
        id: &DocumentId,
        now: &[String],
        parked_streams: &ParkedStreams,
    ) -> Vec<ParkedStreams> {
        let steps = self.routed.get(&(projection, id.clone())).map(Vec::as_slice).unwrap_or_default();
        let mut cuts = vec![ParkedStreams::new()];
        for (stream, from) in parked_streams {
            let own = || steps.iter().filter(|step| step.stream == *stream && step.position >= *from);
            let last = own().rfind(|step| now.contains(&step.name));
            let ends = own().filter(|step| step.clears).chain(last).map(|step| Position(step.position.0 + 1));
            let ends: BTreeSet<_> = ends.chain([*from]).collect();
            let longer = cuts.iter().flat_map(|cut| {
                ends.iter().map(|end| {
                    let mut cut = cut.clone();
                    cut.insert(stream.clone(), *end);
                    cut
                })
            });
            cuts = longer.collect();
        }
        cuts
    }
}

/// Returns the events that a document lists.
pub(super) fn listed(record: &Record) -> Vec<String> {
    record.body.as_ref().and_then(|body| body.to::<FoldedEvents>().ok()).unwrap_or_default().events
}

/// Returns whether two lists are the same. With several partitions only the order within each
/// stream counts.
pub(super) fn same(expected: &[String], actual: &[String], log: &Mark) -> bool {
    if log.lanes().count() <= 1 {
        return expected == actual;
    }
    expected.len() == actual.len() && by_stream(expected) == by_stream(actual)
}

fn by_stream<'a>(names: impl IntoIterator<Item = &'a String>) -> BTreeMap<&'a str, Vec<&'a String>> {
    let mut streams: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for name in names {
        let stream = name.rsplit_once('@').map_or(name.as_str(), |(stream, _)| stream);
        streams.entry(stream).or_default().push(name);
    }
    streams
}
