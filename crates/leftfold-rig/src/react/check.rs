//! The final checks of reactions, based only on the log, the documents and the effects.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use leftfold::log::Limit;
use leftfold::react::{Ended, Query, State};
use leftfold::{Collection, Partition, Position};
use leftfold_sim::notes::{BY_CONTENT, BY_STREAM, FoldedEvents};
use serde_json::{Value, json};

use super::effect_file::{Effect, read_all};
use super::failed::{check_deadly, is_deadly, outline, was_suspect};
use super::handlers::{EVENT, HOLD, ITEM, KINDS, LARGE, LONG_ERROR, MAIL, POISON, RECORD, Summary, summary};
use super::item_writer::{Item, Written};
use crate::failure::Failure;
use crate::store::TestedStore;

/// The maximum size of a task's error text and watched value.
const MAX_KEPT_BYTES: usize = 17 << 10;

/// The reports of processes, most of which have ended.
pub(crate) struct Reports<'a> {
    /// For each process that the deadly document has killed, the number of handlers that died
    /// beside it.
    pub(crate) falls: &'a [u64],
    /// The number of tasks that reactors have given up.
    pub(crate) given_up: u64,
}

/// The final results.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// Effects recorded in transactions.
    pub(crate) recorded: u64,
    /// Events handled one by one.
    pub(crate) events: u64,
    /// Effects outside the store, without repetitions.
    pub(crate) outside: u64,
    /// Repetitions of effects outside the store.
    pub(crate) doubled: u64,
    /// Lost claims in the tasks' histories.
    pub(crate) claims_lost: u64,
    /// Tasks that lost a claim with its process.
    pub(crate) suspects: u64,
    /// Tasks among the suspects that ran in the same reaction as the deadly document.
    pub(crate) neighbours: u64,
    pub(crate) wrong: Vec<String>,
}

/// Checks everything when no work is left.
pub(crate) async fn check<S: TestedStore>(
    store: &S,
    directory: &Path,
    written: &Written,
    reports: &Reports<'_>,
) -> Result<Done, Failure> {
    let (recorded, outside) = (store.effects().await?, read_all(directory)?);
    let log = Log::read(store).await?;
    let mut wrong = Vec::new();
    keys(&recorded, &outside, &mut wrong);
    orders(&recorded, &mut wrong);
    let by_document = by_document(recorded.iter().chain(&outside));
    for (name, reaction) in [(BY_STREAM, RECORD), (BY_CONTENT, MAIL)] {
        for ((_, document), effects) in by_document.iter().filter(|((one, _), _)| *one == reaction) {
            for effect in effects {
                log.has_been(name, document, &effect.state, &mut wrong);
            }
        }
        for record in store.scan(&Collection::new(name)?, None, usize::MAX).await? {
            let Some(body) = &record.body else { continue };
            let now = json!(summary(&body.to::<FoldedEvents>()?));
            let effects = by_document.get(&(reaction, record.id.as_str())).map_or(&[][..], Vec::as_slice);
            let last = effects.iter().max_by_key(|effect| effect.before);
            let is_handled = match reaction {
                // Effects in transactions have an order: this state must be the last.
                RECORD => last.is_some_and(|effect| effect.state == now),
                _ => effects.iter().any(|effect| effect.state == now),
            };
            if !is_handled {
                wrong.push(format!("I10: {reaction} has not handled the last state of {}: {now}", record.id));
            }
        }
    }
    items(store, written, &by_document, &mut wrong).await?;
    log.were_handled(&by_document, &mut wrong);
    let mut done = tasks(store, reports, &mut wrong).await?;
    let distinct = outside.iter().map(|effect| &effect.key).collect::<BTreeSet<_>>().len() as u64;
    let events = recorded.iter().filter(|effect| effect.reaction == EVENT).count() as u64;
    done.recorded = recorded.len() as u64 - events;
    (done.events, done.outside, done.wrong) = (events, distinct, wrong);
    done.doubled = outside.len() as u64 - distinct;
    Ok(done)
}

type ByDocument<'a> = BTreeMap<(&'a str, &'a str), Vec<&'a Effect>>;

fn by_document<'a>(effects: impl Iterator<Item = &'a Effect>) -> ByDocument<'a> {
    let mut found = ByDocument::new();
    for effect in effects {
        found.entry((&effect.reaction, &effect.document)).or_default().push(effect);
    }
    found
}

/// Checks that keys and states correspond one to one, and that no effect was recorded twice in
/// transactions.
fn keys(recorded: &[Effect], outside: &[Effect], wrong: &mut Vec<String>) {
    let mut states: HashMap<&str, &Effect> = HashMap::new();
    let mut keys: HashMap<(&str, &str, String), &str> = HashMap::new();
    let mut once = BTreeSet::new();
    for effect in recorded {
        if !once.insert(&effect.key) {
            wrong.push(format!("I4: {} was recorded twice", effect.key));
        }
    }
    for effect in recorded.iter().chain(outside) {
        let Effect { reaction, document, key, state, .. } = effect;
        let first = states.entry(key).or_insert(effect);
        if (&first.document, &first.state) != (document, state) {
            wrong.push(format!("I5: {key} is the key of both {} and {state} of {document}", first.state));
        }
        let known = keys.entry((reaction, document, state.to_string())).or_insert(key);
        if known != key {
            wrong.push(format!("I5: {reaction} has keys {known} and {key} for {state} of {document}"));
        }
    }
}

/// Checks that effects with a count of earlier ones all have different places.
fn orders(recorded: &[Effect], wrong: &mut Vec<String>) {
    for ((reaction, document), effects) in by_document(recorded.iter()) {
        let mut places: Vec<_> = effects.iter().map(|effect| effect.before).collect();
        places.sort_unstable();
        if places != (0..effects.len() as u64).map(Some).collect::<Vec<_>>() {
            wrong.push(format!("I4: effects of {reaction} for {document} have the places {places:?}"));
        }
    }
}

async fn items<S: TestedStore>(
    store: &S,
    written: &Written,
    effects: &ByDocument<'_>,
    wrong: &mut Vec<String>,
) -> Result<(), Failure> {
    let there = store.items().await?;
    let ids: BTreeSet<_> = there.keys().chain(written.now.keys()).collect();
    for id in ids {
        let (is, should) = (there.get(id), written.now.get(id));
        if is != should {
            // Leave out a large text.
            let tag = |item: Option<&Item>| item.map(|item| (item.kind, item.on, item.tag, item.note));
            wrong.push(format!("item {id} is {:?} and should be {:?}", tag(is), tag(should)));
        }
    }
    for (id, item) in &there {
        let Some(reaction) = item.reaction() else { continue };
        let effects = effects.get(&(reaction, id.as_str())).map_or(&[][..], Vec::as_slice);
        if !effects.iter().any(|effect| effect.state == json!(item.tag)) {
            wrong.push(format!("I10: {reaction} has not handled the last state of {id}: {}", item.tag));
        }
    }
    let of_items = |reaction: &str| [ITEM, POISON, HOLD, LARGE].contains(&reaction);
    for ((_, id), effects) in effects.iter().filter(|((reaction, _), _)| of_items(reaction)) {
        let tags = written.tags.get(*id);
        for effect in effects {
            let is_known =
                effect.state.as_u64().is_some_and(|tag| tags.is_some_and(|tags| tags.contains(&tag)));
            if !is_known {
                wrong.push(format!("I5: {} names a state that {id} never had: {}", effect.key, effect.state));
            }
        }
    }
    Ok(())
}

/// Checks that no task is left, and that only the task of the deadly document has failed.
async fn tasks<S: TestedStore>(
    store: &S,
    reports: &Reports<'_>,
    wrong: &mut Vec<String>,
) -> Result<Done, Failure> {
    let mut done = Done::default();
    let (mut deadly, mut long_errors) = (false, 0);
    for task in store.list_tasks(Query::default(), None, usize::MAX >> 1).await? {
        if is_deadly(&task) {
            deadly = true;
            check_deadly(&task, reports.falls, wrong);
        } else if !matches!(task.state, State::Done | State::Stale) {
            wrong.push(format!("I10: a task is open: {}", outline(&task)));
        }
        let errors = || task.error.iter().chain(task.history.iter().filter_map(|run| run.error.as_ref()));
        let kept = errors().map(String::len).max().unwrap_or(0).max(task.watched.as_str().len());
        if kept > MAX_KEPT_BYTES {
            wrong.push(format!("a task stores a text of {kept} bytes: {}", outline(&task)));
        }
        let (begin, end) = LONG_ERROR;
        long_errors += errors().filter(|error| error.starts_with(begin) && error.ends_with(end)).count();
        done.claims_lost += task.history.iter().filter(|run| run.outcome == Ended::Lost).count() as u64;
        let is_suspect = was_suspect(&task);
        done.suspects += u64::from(is_suspect);
        done.neighbours += u64::from(is_suspect && task.key.reaction == POISON && !is_deadly(&task));
    }
    if !deadly {
        wrong.push("I8: the deadly document has no task".to_owned());
    }
    if long_errors == 0 {
        wrong.push("no task has a long error in its history".to_owned());
    }
    // A task that was given up and renewed later looks like any other.
    if reports.given_up > 1 {
        wrong.push(format!(
            "I8: {} tasks were given up, not only that of the deadly document",
            reports.given_up
        ));
    }
    Ok(done)
}

/// The events of each stream: their revision, and whether they clear a document.
type ByStream = BTreeMap<String, Vec<(u64, bool)>>;

/// The parts of the log that matter to documents and reactions.
#[derive(Default)]
struct Log {
    /// The events of each document, by projection.
    routed: HashMap<(&'static str, String), ByStream>,
    /// The revisions of the events to handle, by stream.
    wanted: BTreeMap<String, Vec<u64>>,
}

impl Log {
    async fn read<S: TestedStore>(store: &S) -> Result<Self, Failure> {
        let mut log = Self::default();
        for partition in (0..store.partitions()).map(Partition) {
            let all = Limit { events: usize::MAX, bytes: usize::MAX };
            for event in store.read(partition, Position(0), all).await?.events {
                let (stream, revision, kind) =
                    (event.stream.to_string(), event.revision.0, event.kind.as_str());
                if KINDS.contains(&kind) {
                    log.wanted.entry(stream.clone()).or_default().push(revision);
                }
                if kind == "unheard-of" {
                    continue;
                }
                let data: Value = event.data.to()?;
                let to = data.get("to").or_else(|| data.get("garbled")).and_then(Value::as_array);
                let to: BTreeSet<&str> = to.into_iter().flatten().filter_map(Value::as_str).collect();
                let to = to.into_iter().map(|to| (BY_CONTENT, to)).chain([(BY_STREAM, stream.as_str())]);
                for (name, document) in to {
                    let routed = log.routed.entry((name, document.to_owned())).or_default();
                    routed.entry(stream.clone()).or_default().push((revision, kind == "cleared"));
                }
            }
        }
        Ok(log)
    }

    /// Checks that a document once had this state. It must list contiguous events of each stream,
    /// none of which clears it. A document by stream must list all events since the last one that
    /// cleared it.
    fn has_been(&self, name: &'static str, document: &str, state: &Value, wrong: &mut Vec<String>) {
        let routed = self.routed.get(&(name, document.to_owned()));
        let is_row = |(stream, (first, last, count)): (String, (u64, u64, u64))| {
            let Some(all) = routed.and_then(|routed| routed.get(&stream)) else { return false };
            let row: Vec<_> = all.iter().filter(|(at, _)| (first..=last).contains(at)).collect();
            let before = all.iter().rfind(|(at, _)| *at < first);
            row.len() as u64 == count
                && row.iter().all(|(_, clears)| !clears)
                && (name != BY_STREAM || before.is_none_or(|(_, clears)| *clears))
        };
        let listed = serde_json::from_value::<Summary>(state.clone());
        if !listed.is_ok_and(|listed| listed.into_iter().all(is_row)) {
            wrong.push(format!("I4: {document} in {name} never was {state}"));
        }
    }

    /// Checks that each wanted event was handled once, in order.
    fn were_handled(&self, effects: &ByDocument<'_>, wrong: &mut Vec<String>) {
        for (stream, revisions) in &self.wanted {
            let mut handled = effects.get(&(EVENT, stream)).cloned().unwrap_or_default();
            handled.sort_by_key(|effect| effect.before);
            let handled: Vec<_> = handled.iter().filter_map(|effect| effect.state.as_u64()).collect();
            if handled != *revisions {
                wrong.push(format!(
                    "I4: {handled:?} of stream {stream} were handled, and should be {revisions:?}"
                ));
            }
        }
    }
}
