//! Leftfold over HTTP: ingests events, serves documents, and offers the operations for both.
//!
//! [`Service`] wraps an application. [`router`](Service::router) returns its routes, which axum can
//! serve alone or beside other routes. `/openapi.json` describes the API. Failures are problem
//! details (RFC 9457).

mod access;
mod api;
mod expiry;
mod gate;
mod health;
mod idempotency;
mod listen;
mod memory;
mod meters;
mod problem;
mod process;
mod rate;
mod ready;
mod room;
mod slow;
mod spans;
mod strict;
mod tls;
mod unreadable;

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
use leftfold_sources::http::Ingest;
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

pub use self::access::{Scope, Token};
use self::api::Rebuilds;
pub use self::expiry::expires;
pub use self::health::Health;
use self::idempotency::Once;
pub use self::listen::{Listen, Serving, bind};
use self::meters::Meters;
pub use self::process::resident_bytes;
pub use self::ready::{Readiness, WatchedFeed};
pub use self::tls::tls;

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
    app: App<S>,
    sequencer: Sequencer<S>,
    reacting: ReactorHandle<S>,
    policy: Policy,
    mapping: Mapping,
    limits: ServerLimits,
    budget: Budget,
    tokens: Vec<Token>,
    rebuilds: Arc<Rebuilds>,
    once: Arc<Once>,
    meters: Arc<Meters>,
    /// The permits for building pages.
    turns: Semaphore,
    /// The name under which this process records requests that have an `Idempotency-Key`.
    name: String,
    readiness: Readiness,
    /// The last response of `/status`, and its time.
    last_status: Mutex<Option<(Timestamp, Value)>>,
    stop: watch::Sender<bool>,
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
        let (rebuilds, once) = (Arc::default(), Arc::default());
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
            once,
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
    /// health [listener](Health) may share it.
    #[must_use]
    pub fn readiness(self, readiness: Readiness) -> Self {
        Self { readiness, ..self }
    }

    /// Replaces another service of the same store. Rebuilds that began there continue here once
    /// that service has [stopped](Stop::stop).
    #[must_use]
    pub fn instead_of(self, other: &Stop) -> Self {
        let Stop { rebuilds, once, meters, name, .. } = other.clone();
        Self { rebuilds, once, meters, name, ..self }
    }

    /// Returns the routes, and a handle that ends event streams, which never end by themselves.
    pub fn router(self) -> (Router, Stop) {
        let shared = Arc::new(self);
        let (rebuilds, once) = (Arc::clone(&shared.rebuilds), Arc::clone(&shared.once));
        let meters = Arc::clone(&shared.meters);
        let stop = Stop {
            stops: shared.stop.clone(),
            rebuilds,
            once,
            meters: Arc::clone(&meters),
            name: shared.name.clone(),
        };
        api::take_up_rebuilds(&shared);
        tokio::spawn(ready::watch(&shared));
        let ingest = Ingest::new(shared.sequencer.clone(), shared.mapping.clone(), shared.policy);
        let ingest = ingest.max_bytes(shared.limits.body).router(api::events::PATH);
        let ingest = ingest
            .route_layer(from_fn_with_state((shared.limits.body, shared.budget.clone()), strict::events));
        let ingest = access::guarded_router(ingest, Scope::Ingest, &shared);
        let budget = shared.budget.clone();
        let routes = api::router(shared).merge(ingest).layer(from_fn(spans::spanned));
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
    once: Arc<Once>,
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
