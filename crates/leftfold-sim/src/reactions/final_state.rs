//! The final checks of reactions.

use std::collections::BTreeMap;
use std::time::Duration;

use leftfold::log::Limit;
use leftfold::react::{Query, ReactionStore as _, State as Is, Task, TaskKey};
use leftfold::{DocumentId, Log as _, Partition, Position, Result};
use serde_json::Value;

use super::ledger::{Effect, Ledger};
use super::things::{DEADLY, POISON, REACTIONS, TORN};
use super::world::World;

/// The required final state of a document's task.
#[derive(Clone, Debug, PartialEq)]
enum Wanted {
    Nothing,
    /// The document can't be read: the task fails with that reason.
    Reason,
    /// The document is handled with this value.
    Value(String),
}

impl Wanted {
    /// Reads the required state for this version of the code from a document's JSON, by hand.
    fn of(code: u32, document: &Value) -> Option<Self> {
        let (on, value) = (document.get("on")?.as_bool()?, document.get("value")?.as_u64()?);
        if document.get("noise")?.as_u64()? == TORN {
            return Some(Self::Reason);
        }
        let is_wanted = if code == 1 { on } else { on != (value == 3) };
        is_wanted.then(|| Self::Value(value.to_string()))
    }
}

impl Ledger {
    pub(super) fn set_up(&self, attempts: u32, visibility: Duration) {
        let mut state = self.state();
        (state.attempts, state.visibility) = (attempts, visibility);
    }

    /// Returns the number of handled states of a document.
    pub(super) fn handled(&self, id: &str) -> u64 {
        let state = self.state();
        let of = state.tasks.iter().filter(|(key, _)| key.document.as_str() == id);
        of.map(|(_, known)| known.done.len() as u64).sum()
    }

    /// Checks that this reaction's task agrees with the last state of a document.
    fn last_state(&self, key: &TaskKey, task: Option<&Task>, wanted: &Wanted) -> Vec<String> {
        let state = self.state();
        let label = format!("{}/{}", key.reaction, key.document);
        let is_hopeless = matches!(key.document.as_str(), POISON | DEADLY);
        let Some(task) = task else {
            let is_wanted = *wanted != Wanted::Nothing;
            return is_wanted
                .then(|| format!("I10: {label} has no task for {wanted:?}"))
                .into_iter()
                .collect();
        };
        let mut wrong = Vec::new();
        if matches!(task.state, Is::Pending | Is::Running | Is::Changed) {
            wrong.push(format!("I10: {label} is {:?} in the end", task.state));
        }
        let value = match wanted {
            Wanted::Value(value) => value,
            Wanted::Nothing => {
                if task.inside {
                    wrong.push(format!("I10: {label} left the filter, and its task does not show it"));
                }
                return wrong;
            }
            Wanted::Reason => {
                let says_why = task.error.as_ref().is_some_and(|error| error.contains("torn"));
                if task.state != Is::Failed || !says_why {
                    let Task { state, error, .. } = task;
                    wrong.push(format!("I10: {label} can't be read, and its task is {state:?}: {error:?}"));
                }
                return wrong;
            }
        };
        let expected = if is_hopeless { Is::Failed } else { Is::Done };
        if !task.inside || task.watched.as_str() != value || task.state != expected {
            let Task { state, inside, watched, .. } = task;
            wrong.push(format!(
                "I10: {label} is {value}, and its task is {state:?} for {}, inside: {inside}",
                watched.as_str()
            ));
        }
        if is_hopeless {
            return wrong;
        }
        let id = task.idempotency_key();
        if key.reaction == "books" {
            if !state.effects.contains_key(&id) {
                wrong.push(format!("I4: {id} is done, and has no effect"));
            }
        } else {
            let mut sent = state.sent.get(&id).into_iter().flatten();
            if !sent.any(|sent| sent.watched == *value) {
                wrong.push(format!("I5: {id} is done, and has no effect for {value}"));
            }
        }
        wrong
    }

    /// Checks that every event after the start of following was handled. Earlier events may be left
    /// out.
    fn events(&self, reaction: &str, stream: &DocumentId, sold: &[(u64, u64)], all: bool) -> Vec<String> {
        let state = self.state();
        let key = TaskKey { reaction: reaction.to_owned(), document: stream.clone() };
        let mut handled: Vec<u64> = if reaction == "tally" {
            let effects = state.effects.values().flatten().filter(|effect| effect.is_of(&key));
            effects.filter_map(Effect::revision).collect()
        } else {
            let sent = state.sent.values().flatten().filter(|sent| sent.key == key);
            sent.filter_map(|sent| sent.revision).collect()
        };
        handled.sort_unstable();
        handled.dedup();
        let followed = if all { 0 } else { state.followed.get(reaction).copied().unwrap_or(u64::MAX) };
        let first = handled.first().copied().unwrap_or(u64::MAX);
        let must = sold.iter().filter(|(position, revision)| *position > followed || *revision >= first);
        let must: Vec<_> = must.map(|(_, revision)| *revision).collect();
        if handled == must {
            return Vec::new();
        }
        vec![format!("I10: {reaction} should handle {must:?} of {stream}, and handled {handled:?}")]
    }
}

impl World {
    /// Checks the final state, when no work is left.
    pub(super) async fn check(&self) -> Result<()> {
        let ledger = &self.store.shared().ledger;
        let code = if self.deployment.is_some() { 2 } else { 1 };
        let documents: BTreeMap<_, _> = {
            let state = ledger.state();
            let last = state.documents.iter().map(|(id, states)| (id.clone(), states.last().cloned()));
            last.map(|(id, last)| (id, last.and_then(|(_, document)| document))).collect()
        };
        for reaction in ["mail", "books", "turns"] {
            for (id, document) in &documents {
                let key = TaskKey { reaction: reaction.to_owned(), document: id.clone() };
                let task = self.store.inner().load_tasks(vec![key.clone()]).await?.pop();
                let wanted = document.as_ref().and_then(|document| Wanted::of(code, document));
                let wanted = wanted.unwrap_or(Wanted::Nothing);
                for wrong in ledger.last_state(&key, task.as_ref(), &wanted) {
                    self.store.violated(wrong);
                }
            }
        }
        let states = vec![Is::Pending, Is::Running, Is::Changed];
        let open = self.store.inner().list_tasks(Query { states, ..Query::default() }, None, 10).await?;
        for task in open {
            let label = format!("{}/{}", task.key.reaction, task.key.document);
            self.store.violated(format!("I10: {label} is {:?} in the end", task.state));
        }
        for registered in self.store.inner().registered().await? {
            if registered.comparing.is_some() && REACTIONS.contains(&registered.name.as_str()) {
                self.store.violated(format!("I10: {} is still comparing in the end", registered.name));
            }
        }
        self.check_events().await
    }

    async fn check_events(&self) -> Result<()> {
        let all = Limit { events: usize::MAX, bytes: usize::MAX };
        let page = self.store.inner().read(Partition(0), Position(0), all).await?;
        let mut streams: BTreeMap<DocumentId, Vec<(u64, u64)>> = BTreeMap::new();
        for event in page.events.iter().filter(|event| event.kind.as_str() == "sold") {
            streams
                .entry(DocumentId::from(&event.stream))
                .or_default()
                .push((event.position.0, event.revision.0));
        }
        for (stream, sold) in &streams {
            for reaction in ["ship", "tally"] {
                let ledger = &self.store.shared().ledger;
                for wrong in ledger.events(reaction, stream, sold, self.setup.from_start) {
                    self.store.violated(wrong);
                }
            }
        }
        Ok(())
    }
}
