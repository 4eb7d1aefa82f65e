//! The registry as this process knows it.

use std::sync::Arc;

use tokio::time::sleep;

use super::shared::{Shared, lock};
use crate::error::Result;
use crate::react::define::Definition;
use crate::react::store::{ReactionStore, Registered};

impl<S: ReactionStore> Shared<S> {
    /// Reads the registry from the store.
    pub(crate) async fn refresh(&self) -> Result<Vec<Registered>> {
        let registered = self.store.registered().await?;
        *lock(&self.registry) = registered.iter().map(|one| (one.name.clone(), one.clone())).collect();
        Ok(registered)
    }

    /// Returns this process's definition of a reaction, if it is the registered one.
    pub(crate) fn known(&self, name: &str) -> Option<Arc<Definition>> {
        let definition = self.definitions.iter().find(|definition| definition.name == name)?;
        let registry = lock(&self.registry);
        let registered = registry.get(name)?;
        let is_same = definition.text == registered.definition
            && definition.rules.version >= registered.code
            && definition.on == registered.on;
        is_same.then(|| Arc::clone(definition))
    }

    /// Returns all definitions of this process that are the registered ones.
    pub(crate) fn current(&self) -> Vec<Arc<Definition>> {
        self.definitions.iter().filter_map(|definition| self.known(&definition.name)).collect()
    }

    /// Changes the registration of a reaction. Returns whether it is registered.
    pub(crate) async fn change(&self, name: &str, change: impl Fn(&mut Registered)) -> Result<bool> {
        let mut pauses = self.pauses();
        loop {
            let registered = self.store.registered().await?;
            let Some(before) = registered.into_iter().find(|one| one.name == name) else { return Ok(false) };
            let seen = before.version;
            let mut after = Registered { version: self.env.random() >> 1, ..before };
            change(&mut after);
            if self.store.register(Some(seen), after).await? {
                return Ok(true);
            }
            sleep(pauses.next().unwrap_or_default()).await;
        }
    }
}
