//! What must hold, checked by code that shares nothing with the engine's fold.
//!
//! | id | what holds |
//! | --- | --- |
//! | I1 | when all is mended, every document is the naive fold of its events |
//! | I2 | marks and checkpoints never decrease |
//! | I3 | at every instant, what a document lists of a stream is in order, without gaps or doubles |
//! | I6 | what was acknowledged is in the log, where its token says |
//! | I10 | within a bound after the last fault, everything is folded and nothing is parked |
//! | I11 | what a client was told is true |

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use leftfold::documents::Commit;
use leftfold::log::Limit;
use leftfold::{Collection, DocumentId, Documents, Event, Log, Mark, Memory, Partition, Position, Token};

use crate::notes::Seen;

/// Watches a run.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    violations: Vec<String>,
    documents: HashMap<(Collection, DocumentId), Mark>,
    checkpoints: HashMap<Collection, Mark>,
    read_up_to: BTreeMap<u16, Position>,
    /// The routed events of each document, per stream, in order: what a document may list.
    routed: BTreeMap<(bool, String), BTreeMap<String, Vec<u64>>>,
    log: Vec<Event>,
}

/// Which documents an event belongs to, read from its JSON by hand; `None` for types that are no concern.
fn documents_of(event: &Event, by_stream: bool) -> Option<BTreeSet<String>> {
    if !matches!(event.kind.as_str(), "noted" | "cleared" | "poison" | "flaky") {
        return None;
    }
    let data: serde_json::Value = serde_json::from_str(event.data.as_str()).ok()?;
    let to = data.get("to").or_else(|| data.get("garbled"))?.as_array()?;
    let to = to.iter().filter_map(|to| Some(to.as_str()?.to_owned())).collect();
    Some(if by_stream { BTreeSet::from([event.stream.to_string()]) } else { to })
}

impl Checker {
    pub(crate) fn violated(&self, what: String) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).violations.push(what);
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).violations.clone()
    }

    /// Looks at what a commit left; answers with what is wrong with it.
    pub(crate) async fn look(&self, truth: &Memory, commit: &Commit) -> Vec<String> {
        let before = self.violations().len();
        self.read_on(truth).await;
        if let Some(advance) = &commit.advance
            && let Ok(now) = truth.checkpoint(&advance.projection).await
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let before =
                state.checkpoints.insert(advance.projection.clone(), now.mark.clone()).unwrap_or_default();
            if !now.mark.covers(&before) {
                let name = &advance.projection;
                state.violations.push(format!("I2: checkpoint of {name} fell from {before} to {}", now.mark));
            }
        }
        for changes in &commit.changes {
            let ids = changes.writes.iter().map(|write| write.record.id.clone()).collect();
            let Ok(records) = truth.load(&changes.collection, ids).await else { continue };
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            for record in records {
                let key = (changes.collection.clone(), record.id.clone());
                let before = state.documents.insert(key, record.header.mark.clone()).unwrap_or_default();
                if !record.header.mark.covers(&before) {
                    let now = &record.header.mark;
                    state
                        .violations
                        .push(format!("I2: the mark of {} fell from {before} to {now}", record.id));
                }
                let Some(seen) = record.body.as_ref().and_then(|body| body.to::<Seen>().ok()) else {
                    continue;
                };
                let by_stream = changes.collection.as_str() == "by_stream";
                if let Some(fault) = state.gap(by_stream, record.id.as_str(), &seen) {
                    state.violations.push(format!("I3: {} in {}: {fault}", record.id, changes.collection));
                }
            }
        }
        self.violations().split_off(before)
    }

    async fn read_on(&self, truth: &Memory) {
        for partition in 0..truth.partitions() {
            let after = {
                let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.read_up_to.get(&partition).copied().unwrap_or_default()
            };
            let limit = Limit { events: usize::MAX, bytes: usize::MAX };
            let Ok(page) = truth.read(Partition(partition), after, limit).await else { continue };
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.read_up_to.insert(partition, page.through);
            for event in page.events {
                for by_stream in [true, false] {
                    for id in documents_of(&event, by_stream).unwrap_or_default() {
                        let streams = state.routed.entry((by_stream, id)).or_default();
                        streams.entry(event.stream.to_string()).or_default().push(event.revision.0);
                    }
                }
                state.log.push(event);
            }
        }
    }

    /// When all is mended: every document is the naive fold of its events, and the log holds what was acknowledged.
    pub(crate) async fn finally(&self, truth: &Memory, by_stream: bool, acknowledged: &[Token]) {
        self.read_on(truth).await;
        let name = if by_stream { "by_stream" } else { "by_content" };
        let Ok(collection) = Collection::new(name) else { return };
        let stored = truth.scan(&collection, None, usize::MAX).await.unwrap_or_default();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut expected: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for event in &state.log {
            for id in documents_of(event, by_stream).unwrap_or_default() {
                if event.kind.as_str() == "cleared" {
                    expected.remove(&id);
                } else {
                    expected.entry(id).or_default().push(format!("{}@{}", event.stream, event.revision));
                }
            }
        }
        let mut actual: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for record in stored {
            let seen = record.body.as_ref().and_then(|body| body.to::<Seen>().ok()).unwrap_or_default();
            actual.insert(record.id.to_string(), seen.events);
        }
        if truth.partitions() > 1 {
            // Between partitions there is no order; that within each stream is checked all the time.
            expected.values_mut().chain(actual.values_mut()).for_each(|events| events.sort());
        }
        for id in expected.keys().chain(actual.keys()).collect::<BTreeSet<_>>() {
            if expected.get(id) != actual.get(id) {
                let (expected, actual) = (expected.get(id), actual.get(id));
                state.violations.push(format!("I1: {id} in {name} is {actual:?} and should be {expected:?}"));
            }
        }
        for token in acknowledged {
            if !state.log.iter().any(|event| event.token() == *token) {
                state.violations.push(format!("I6: {token} was acknowledged and is not in the log"));
            }
        }
    }

    /// Whether a stream was ever cleared, so that what its document lists can't be told from a token.
    pub(crate) async fn is_plain(&self, truth: &Memory, token: &Token) -> bool {
        self.read_on(truth).await;
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let of_stream = state.log.iter().filter(|event| event.stream == token.stream);
        let mut plain = of_stream.clone().all(|event| event.kind.as_str() != "cleared");
        plain &= of_stream
            .into_iter()
            .any(|event| event.revision == token.revision && event.kind.as_str() == "noted");
        plain
    }
}

impl State {
    /// What is wrong with what a document lists, if something is.
    fn gap(&self, by_stream: bool, id: &str, seen: &Seen) -> Option<String> {
        let mut listed: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for event in &seen.events {
            let (stream, revision) = event.rsplit_once('@')?;
            listed.entry(stream).or_default().push(revision.parse().ok()?);
        }
        let routed = self.routed.get(&(by_stream, id.to_owned()));
        for (stream, revisions) in listed {
            let Some(all) = routed.and_then(|streams| streams.get(stream)) else {
                return Some(format!("it lists {stream}, which was never routed to it"));
            };
            let begin = all.iter().position(|revision| Some(revision) == revisions.first());
            let run = begin.and_then(|begin| all.get(begin..begin + revisions.len()));
            if run != Some(&revisions[..]) {
                return Some(format!("of {stream} it lists {revisions:?}, and {all:?} were routed to it"));
            }
        }
        None
    }
}
