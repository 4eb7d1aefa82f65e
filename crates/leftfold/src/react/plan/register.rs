//! Registration: a process announces its definition of a reaction.

use crate::error::Result;
use crate::react::define::Definition;
use crate::react::reactor::Shared;
use crate::react::store::{Comparing, ReactionStore, Registered};

/// Registers a reaction. If it is new or has changed, requests a comparison of all documents.
pub(crate) async fn register<S: ReactionStore>(shared: &Shared<S>, definition: &Definition) -> Result<()> {
    loop {
        let found = shared.store.registered().await?;
        let found = found.into_iter().find(|one| one.name == definition.name);
        let seen = found.as_ref().map(|one| one.version);
        let code = definition.rules.version;
        let after = match found {
            None => Registered {
                name: definition.name.clone(),
                version: 0,
                on: definition.on.clone(),
                definition: definition.text.clone(),
                code,
                paused: false,
                paused_because: None,
                throttled: None,
                comparing: Some(Comparing::ToBegin),
            },
            // Newer code is registered, and takes precedence.
            Some(found) if found.code > code => return Ok(()),
            Some(found) => {
                let is_same =
                    found.definition == definition.text && found.on == definition.on && found.code == code;
                if is_same {
                    return Ok(());
                }
                Registered {
                    on: definition.on.clone(),
                    definition: definition.text.clone(),
                    code,
                    comparing: Some(Comparing::ToBegin),
                    ..found
                }
            }
        };
        let after = Registered { version: shared.env.random() >> 1, ..after };
        if shared.store.register(seen, after).await? {
            return Ok(());
        }
    }
}
