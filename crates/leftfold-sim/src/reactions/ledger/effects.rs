//! The effects of handlers, in transactions and outside the store.

use leftfold::react::{Task, TaskKey};

use super::state::Ledger;

/// An effect recorded in a transaction.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    key: TaskKey,
    idempotency_key: String,
    watched: String,
    revision: Option<u64>,
}

impl Effect {
    pub(crate) fn of(task: &Task, revision: Option<u64>) -> Self {
        let (key, watched) = (task.key.clone(), task.watched.as_str().to_owned());
        Self { key, idempotency_key: task.idempotency_key(), watched, revision }
    }

    pub(in crate::reactions) fn is_of(&self, key: &TaskKey) -> bool {
        self.key == *key
    }

    pub(in crate::reactions) fn revision(&self) -> Option<u64> {
        self.revision
    }
}

/// An effect outside the store.
#[derive(Clone, Debug)]
pub(in crate::reactions) struct Sent {
    pub(in crate::reactions) key: TaskKey,
    pub(in crate::reactions) watched: String,
    pub(in crate::reactions) epoch: u64,
    pub(super) generation: u64,
    pub(in crate::reactions) revision: Option<u64>,
}

impl Ledger {
    /// Records an effect outside the store. Returns the violations.
    pub(crate) fn sent(&self, task: &Task, revision: Option<u64>) -> Vec<String> {
        let sent = Sent {
            key: task.key.clone(),
            watched: task.watched.as_str().to_owned(),
            epoch: task.epoch,
            generation: task.generation,
            revision,
        };
        let mut wrong = Vec::new();
        let (id, mut state) = (task.idempotency_key(), self.state());
        let others = state.sent.entry(id.clone()).or_default();
        let same = |other: &Sent| {
            (&other.key, &other.watched, other.revision) == (&sent.key, &sent.watched, sent.revision)
        };
        if !others.iter().all(same) {
            wrong.push(format!("I5: the key {id} has several causes"));
        }
        if others.iter().any(|other| other.epoch == sent.epoch) {
            wrong.push(format!("I5: one run sent {id} twice"));
        }
        let retried = |sent: &Sent| state.tasks.get(&sent.key).is_some_and(|known| !known.retried.is_empty());
        // The same event or state must not have another key.
        let is_same = |one: &Sent| {
            let same =
                if revision.is_some() { one.revision == revision } else { one.generation == sent.generation };
            one.key == sent.key && same
        };
        let other = state.sent.iter().find(|(other, all)| **other != id && all.iter().any(is_same));
        if let Some((other, _)) = other.filter(|_| !retried(&sent)) {
            wrong.push(format!("I5: one cause has the keys {other} and {id}"));
        }
        state.sent.entry(id).or_default().push(sent);
        wrong
    }

    /// Records an effect in a transaction. Returns the violations.
    pub(crate) fn effect(&self, effect: Effect) -> Vec<String> {
        let mut state = self.state();
        let mut wrong = Vec::new();
        let Effect { key, idempotency_key: id, watched, revision } = &effect;
        let known = state.tasks.get(key).cloned().unwrap_or_default();
        if revision.is_none() && !state.was(&key.document, watched) {
            wrong.push(format!("I4: the effect {id} is for {watched}, which {} never was", key.document));
        }
        let others = state.effects.entry(id.clone()).or_default();
        if !others.is_empty() && known.retried.is_empty() {
            wrong.push(format!("I4: the effect {id} was recorded twice"));
        }
        others.push(effect);
        wrong
    }
}
