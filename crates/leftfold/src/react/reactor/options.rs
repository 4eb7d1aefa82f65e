//! The entry point of reactions: the reactions of a store, and this process's share of the work.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::clock::keep_time;
use super::handle::ReactorHandle;
use super::shared::{Shared, keep_waking};
use crate::env::{Env, System, event_id};
use crate::error::{Invalid, Result};
use crate::react::define::Reaction;
use crate::react::plan::{SWEEP_EVERY, begin_events, check_and_compare, follow, follow_events, register};
use crate::react::run::run;
use crate::react::store::{DocumentSource, ReactionStore};

/// Configures the reactions on a store, and this process's share of the work.
///
/// ```
/// # use leftfold::react::{ExternalCollection, Reaction, Reactor};
/// # use leftfold::{DocumentId, Json, Memory};
/// # use serde::Deserialize;
/// #[derive(Deserialize)]
/// struct Order { paid: bool }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leftfold::Result<()> {
/// let store = Memory::default();
/// let parcels = Reaction::on_plain("orders", "parcel")
///     .when(|order: &Order| order.paid)
///     .run(async |ctx| {
///         let _order = ctx.document().await?;
///         println!("{} is on its way", ctx.id());
///         Ok(())
///     });
/// let reacting = Reactor::on(store.clone()).reaction(parcels).start().await?;
/// let order = Json::parse(r#"{"paid":true}"#)?;
/// store.write_plain(&ExternalCollection::new("orders")?, DocumentId::new("o-1")?, Some(order));
/// reacting.idle().await?;
/// assert_eq!(reacting.counts().done, 1);
/// reacting.stop(std::time::Duration::from_secs(5)).await;
/// # Ok(()) }
/// ```
#[must_use = "nothing runs until it is started"]
pub struct Reactor<S> {
    store: S,
    env: Arc<dyn Env>,
    owner: Option<String>,
    reactions: Vec<Reaction>,
    plans: bool,
    runs: Option<Vec<String>>,
    concurrency: usize,
    sweep_every: Duration,
}

impl<S: ReactionStore> Reactor<S> {
    /// Creates a reactor on this store, without reactions.
    pub fn on(store: S) -> Self {
        Self {
            store,
            env: Arc::new(System),
            owner: None,
            reactions: Vec::new(),
            plans: true,
            runs: None,
            concurrency: 256,
            sweep_every: SWEEP_EVERY,
        }
    }

    /// Adds a reaction.
    pub fn reaction(mut self, reaction: Reaction) -> Self {
        self.reactions.push(reaction);
        self
    }

    /// Sets whether this process plans tasks; it does by default. At least one process that knows a
    /// reaction must plan for it.
    pub fn plans(self, plans: bool) -> Self {
        Self { plans, ..self }
    }

    /// Sets the reactions that run in this process; the default is all of them.
    pub fn runs(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { runs: Some(names.into_iter().map(Into::into).collect()), ..self }
    }

    /// Sets the maximum number of handlers that run in this process at the same time, across all
    /// reactions. The default is 256.
    pub fn concurrency(self, most: usize) -> Self {
        Self { concurrency: most, ..self }
    }

    /// Sets how often the planner looks for tasks to delete; the default is once a minute.
    pub fn sweep_every(self, period: Duration) -> Self {
        Self { sweep_every: period, ..self }
    }

    /// Sets the worker name of this process. Two live processes must never share a name.
    pub fn worker(self, name: impl Into<String>) -> Self {
        Self { owner: Some(name.into()), ..self }
    }

    /// Sets the source of randomness.
    pub fn env(self, env: impl Env) -> Self {
        Self { env: Arc::new(env), ..self }
    }

    /// Registers the reactions, then plans and runs tasks until it is
    /// [stopped](ReactorHandle::stop).
    pub async fn start(self) -> Result<ReactorHandle<S>> {
        Ok(self.register().await?.start())
    }

    /// Registers the reactions. Nothing runs until [`Registration::start`], which can't fail.
    pub async fn register(self) -> Result<Registration<S>> {
        let definitions = self.reactions.into_iter().map(|one| one.0).collect::<Result<Vec<_>, _>>()?;
        let mut names = BTreeSet::new();
        if let Some(twice) = definitions.iter().find(|one| !names.insert(one.name.clone())) {
            return Err(Invalid::new("reaction", &twice.name, "each reaction to have its own name").into());
        }
        let runs: Vec<_> = match &self.runs {
            None => definitions.clone(),
            Some(wanted) => {
                if let Some(unknown) = wanted.iter().find(|name| !names.contains(*name)) {
                    let known: Vec<_> = names.iter().map(String::as_str).collect();
                    let expected = format!("a reaction that was added: {}", known.join(", "));
                    return Err(Invalid::new("reaction to run", unknown, expected).into());
                }
                definitions.iter().filter(|one| wanted.contains(&one.name)).cloned().collect()
            }
        };
        let places: BTreeSet<_> = definitions.iter().filter_map(|one| one.on.clone()).collect();
        let places: Vec<_> = places.into_iter().collect();
        self.store.prepare_reactions(&places).await?;
        let owner = self.owner.unwrap_or_else(|| event_id(&*self.env).to_string());
        let mut shared = Shared::new(self.store, self.env, owner).await?;
        (shared.definitions, shared.runs) = (definitions, runs);
        (shared.concurrency, shared.sweep_every) = (self.concurrency.max(1), self.sweep_every);
        let shared = Arc::new(shared);
        for definition in &shared.definitions {
            register(&shared, definition).await?;
        }
        if self.plans {
            for definition in &shared.definitions {
                begin_events(&shared, definition).await?;
            }
        }
        shared.refresh().await?;
        Ok(Registration { shared, places, plans: self.plans })
    }
}

/// Reactions that are registered but not yet running.
#[must_use = "nothing runs until it is started"]
pub struct Registration<S> {
    shared: Arc<Shared<S>>,
    places: Vec<DocumentSource>,
    plans: bool,
}

impl<S: ReactionStore> Registration<S> {
    /// Plans and runs tasks until it is [stopped](ReactorHandle::stop).
    pub fn start(self) -> ReactorHandle<S> {
        let Self { shared, places, plans } = self;
        let mut planners = JoinSet::new();
        if plans {
            for on in places {
                planners.spawn(follow(Arc::clone(&shared), on));
            }
            planners.spawn(check_and_compare(Arc::clone(&shared)));
            for definition in shared.definitions.iter().filter(|one| one.events.is_some()) {
                planners.spawn(follow_events(Arc::clone(&shared), Arc::clone(definition)));
            }
        }
        planners.spawn(keep_time(Arc::clone(&shared)));
        planners.spawn(keep_waking(Arc::clone(&shared)));
        let end = watch::Sender::new(None);
        let runner =
            (!shared.runs.is_empty()).then(|| tokio::spawn(run(Arc::clone(&shared), end.subscribe())));
        ReactorHandle::new(shared, planners, runner, end)
    }
}
