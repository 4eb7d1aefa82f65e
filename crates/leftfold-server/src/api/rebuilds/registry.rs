//! The rebuilds that this process has started, and their states.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use leftfold::rebuild::{Difference, Progress};
use serde::Serialize;

use super::super::audit::Actor;
use crate::problem::Problem;

/// The rebuilds that this process has begun, by collection.
#[derive(Default)]
pub(crate) struct Rebuilds(Mutex<BTreeMap<String, RebuildState>>);

/// The state of a rebuild.
#[derive(Clone, Default, Serialize)]
pub(super) struct RebuildState {
    #[serde(rename = "state")]
    pub(super) stage: Stage,
    pub(super) generation: u32,
    pub(super) progress: Option<Progress>,
    pub(super) difference: Option<Difference>,
    pub(super) error: Option<String>,
    /// `true` if readers are switched to it as soon as it is built.
    #[serde(skip)]
    pub(super) switch: bool,
    /// The operator who began it, and the reason.
    #[serde(skip)]
    pub(super) order: Option<(Actor, Option<String>)>,
    /// Locked by the task that works on the rebuild.
    #[serde(skip)]
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Stage {
    /// The rebuild is in progress.
    #[default]
    Building,
    /// The rebuild is built and compared. Another request switches to it or cancels it.
    Built,
    /// Readers see the rebuilt documents.
    Switched,
    /// The rebuild failed.
    Failed,
}

impl Rebuilds {
    /// Records the start of a rebuild, and returns the state of the last one. Fails if one is in
    /// progress.
    pub(super) fn begin(
        &self,
        collection: &str,
        switch: bool,
        order: (Actor, Option<String>),
    ) -> Result<Option<RebuildState>, Problem> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.get(collection).is_some_and(|state| state.stage == Stage::Building) {
            return Err(Problem::conflict(format!(
                "a rebuild of collection {collection} is in progress; GET it for the progress"
            )));
        }
        let order = Some(order);
        Ok(all.insert(collection.to_owned(), RebuildState { switch, order, ..RebuildState::default() }))
    }

    /// Returns the rebuilds in progress.
    pub(super) fn in_progress(&self) -> Vec<(String, RebuildState)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let in_progress = all.iter().filter(|(_, state)| state.stage == Stage::Building);
        in_progress.map(|(collection, state)| (collection.clone(), state.clone())).collect()
    }

    /// Restores the state of the last rebuild, because the new one could not start.
    pub(super) fn restore(&self, collection: &str, last: Option<RebuildState>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match last {
            Some(last) => all.insert(collection.to_owned(), last),
            None => all.remove(collection),
        };
    }

    pub(super) fn change(&self, collection: &str, change: impl FnOnce(&mut RebuildState)) {
        if let Some(state) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(collection) {
            change(state);
        }
    }

    /// Records the end of a rebuild.
    pub(super) fn end(&self, collection: &str, ended: leftfold::Result<Stage>) {
        self.change(collection, |state| match ended {
            Ok(stage) => state.stage = stage,
            Err(error) => {
                tracing::warn!(%collection, %error, "a rebuild failed");
                (state.stage, state.error) = (Stage::Failed, Some(error.to_string()));
            }
        });
    }

    pub(super) fn get(&self, collection: &str) -> Option<RebuildState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(collection).cloned()
    }
}
