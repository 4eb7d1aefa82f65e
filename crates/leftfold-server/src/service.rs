//! An application served over HTTP.

use std::fmt;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use jiff::Timestamp;
use leftfold::budget::Budget;
use leftfold::inspect::doctor::Examine;
use leftfold::react::{ReactionStore, Reactor, ReactorHandle};
use leftfold::revision::Counters;
use leftfold::{App, Env as _, Policy, Sequencer, Sequences, Store, System};
use leftfold_sources::Mapping;
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use crate::access::Token;
use crate::api::{self, Rebuilds};
use crate::idempotency::KeyedRequests;
use crate::meters::{self, Meters};
use crate::ready::{self, Readiness};
use crate::{memory, process, spans};

/// A store that supports everything the server offers.
pub trait Backend: Store + Sequences + ReactionStore + Counters + Examine {}

impl<S: Store + Sequences + ReactionStore + Counters + Examine> Backend for S {}

/// Limits for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// The largest body, in bytes. The default is 8 MiB.
    pub body: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self { body: 8 << 20 }
    }
}

/// An application served over HTTP, with the sequencer that feeds its log.
pub struct Service<S: Backend> {
    pub(crate) app: App<S>,
    pub(crate) sequencer: Sequencer<S>,
    pub(crate) reacting: ReactorHandle<S>,
    pub(crate) policy: Policy,
    pub(crate) mapping: Mapping,
    pub(crate) limits: ServerLimits,
    pub(crate) budget: Budget,
    pub(crate) tokens: Vec<Token>,
    pub(crate) rebuilds: Arc<Rebuilds>,
    pub(crate) keyed_requests: Arc<KeyedRequests>,
    pub(crate) meters: Arc<Meters>,
    /// The permits for building pages.
    pub(crate) turns: Semaphore,
    /// The name under which this process records requests that have an `Idempotency-Key`.
    pub(crate) name: String,
    pub(crate) readiness: Readiness,
    /// The last response of `/status`, and its time.
    pub(crate) last_status: Mutex<Option<(Timestamp, Value)>>,
    pub(crate) stop: watch::Sender<bool>,
}

/// The number of pages that are built at the same time.
const TURNS: usize = 8;

pub(crate) type Shared<S> = Arc<Service<S>>;

impl<S: Backend> Service<S> {
    /// Serves an application. Without [tokens](Self::tokens) every client may do everything.
    pub async fn new(app: App<S>) -> leftfold::Result<Self> {
        let sequencer = Sequencer::new(app.store().clone());
        // A handle on all reactions of the store, including those that run elsewhere; none runs
        // here.
        let reacting = Reactor::on(app.store().clone()).plans(false).start().await?;
        let (stop, _) = watch::channel(false);
        let (policy, limits, tokens) = (Policy::Contiguous, ServerLimits::default(), Vec::new());
        let (rebuilds, keyed_requests) = (Arc::default(), Arc::default());
        let name = format!("{:016x}{:016x}", System.random(), System.random());
        let (budget, meters) = (Budget::unlimited(), Arc::default());
        process::started();
        let (readiness, last_status) = (Readiness::default(), Mutex::default());
        Ok(Self {
            app,
            sequencer,
            reacting,
            policy,
            mapping: Mapping::default(),
            limits,
            budget,
            tokens,
            rebuilds,
            keyed_requests,
            meters,
            turns: Semaphore::new(TURNS),
            name,
            readiness,
            last_status,
            stop,
        })
    }

    /// Requires a token with the right scope for each request.
    #[must_use]
    pub fn tokens(self, tokens: Vec<Token>) -> Self {
        Self { tokens, ..self }
    }

    /// Sets how posted events are ordered. The default is contiguous revisions.
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// Sets how posted messages become events. The default is `CloudEvents`.
    #[must_use]
    pub fn mapping(self, mapping: impl Into<Mapping>) -> Self {
        Self { mapping: mapping.into(), ..self }
    }

    /// Sets the limits for a request.
    #[must_use]
    pub fn limits(self, limits: ServerLimits) -> Self {
        Self { limits, ..self }
    }

    /// Sets the memory budget that requests, responses and event streams share with the rest of the
    /// process. Without a budget their memory is counted and never refused.
    #[must_use]
    pub fn budget(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    /// Sets the name of this process, if the name stays the same after a restart. The restarted
    /// process can then take over its unfinished requests with an `Idempotency-Key` at once. Never
    /// give two running processes the same name.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets the handle that reports whether requests can be served. The default is a new one. A
    /// health [listener](crate::Health) may share it.
    #[must_use]
    pub fn readiness(self, readiness: Readiness) -> Self {
        Self { readiness, ..self }
    }

    /// Replaces another service of the same store. Rebuilds that began there continue here once
    /// that service has [stopped](Stop::stop).
    #[must_use]
    pub fn instead_of(self, other: &Stop) -> Self {
        let Stop { rebuilds, keyed_requests, meters, name, .. } = other.clone();
        Self { rebuilds, keyed_requests, meters, name, ..self }
    }

    /// Returns the routes, and a handle that ends event streams, which never end by themselves.
    pub fn router(self) -> (Router, Stop) {
        let shared = Arc::new(self);
        let stop = Stop {
            stops: shared.stop.clone(),
            rebuilds: Arc::clone(&shared.rebuilds),
            keyed_requests: Arc::clone(&shared.keyed_requests),
            meters: Arc::clone(&shared.meters),
            name: shared.name.clone(),
        };
        api::take_up_rebuilds(&shared);
        tokio::spawn(ready::watch(&shared));
        let (budget, meters) = (shared.budget.clone(), Arc::clone(&shared.meters));
        let routes = api::router(shared).layer(from_fn(spans::spanned));
        let routes = routes.layer(from_fn_with_state(budget, memory::charged));
        (routes.layer(from_fn_with_state(meters, meters::counted)), stop)
    }

    /// Waits for a permit to read a page and build a response from it. The budget is charged only
    /// once the response is built, so few are built at the same time.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.turns.acquire().await.ok()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits until the server is about to stop.
    pub(crate) async fn stopping(&self) {
        // The sender lives as long as `self`.
        let _ = self.stop.subscribe().wait_for(|stops| *stops).await;
    }
}

/// A handle that ends event streams and makes `/readyz` fail.
#[derive(Clone, Default)]
pub struct Stop {
    stops: watch::Sender<bool>,
    rebuilds: Arc<Rebuilds>,
    keyed_requests: Arc<KeyedRequests>,
    meters: Arc<Meters>,
    name: String,
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop").field("stops", &*self.stops.borrow()).finish_non_exhaustive()
    }
}

impl Stop {
    /// Announces that the server is about to stop.
    pub fn stop(&self) {
        self.stops.send_replace(true);
    }
}
