//! Building an application: its store, projections and reactions.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use tokio::sync::Mutex;

use super::worker::Worker;
use super::{App, Inner, Reacts};
use crate::env::{Env, System, event_id};
use crate::error::{Invalid, Result};
use crate::fold::{FoldOptions, Projection, Running, WorkerContext};
use crate::inspect::InspectProjection;
use crate::react::{Reaction, ReactionStore, Reactor};
use crate::rebuild::{change, tidy};
use crate::store::Store;

/// Describes an application: which projections run on which store.
///
/// ```
/// # use leftfold::{Event, Leftfold, Memory, Projection, fold};
/// # use serde::{Deserialize, Serialize};
/// #[derive(Serialize, Deserialize)]
/// #[serde(rename_all = "kebab-case")]
/// enum Cart { ItemAdded { product: String, quantity: u32 } }
///
/// #[derive(Serialize, Deserialize, Debug, PartialEq)]
/// struct Details { items: u32 }
///
/// struct CartDetails;
/// impl Projection for CartDetails {
///     type Event = Cart;
///     type Document = Details;
///     fn name(&self) -> &str { "cart_details" }
///     fn fold(&self, cart: Option<Details>, event: &Event<Cart>) -> Result<Option<Details>, fold::Error> {
///         let Cart::ItemAdded { quantity, .. } = &event.data;
///         Ok(Some(Details { items: cart.map_or(0, |cart| cart.items) + quantity }))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let app = Leftfold::on(Memory::default()).projection(CartDetails).start().await?;
/// let bookmark = app.append("cart-42", [Cart::ItemAdded { product: "shoes".into(), quantity: 2 }]).await?;
/// let cart = app.get(CartDetails, "cart-42").at_least(bookmark).await?;      // read your own write
/// assert_eq!(cart, Some(Details { items: 2 }));
/// app.stop().await;
/// # Ok(()) }
/// ```
#[must_use = "nothing runs until it is opened or started"]
pub struct Leftfold<S> {
    store: S,
    env: Arc<dyn Env>,
    options: FoldOptions,
    worker: Option<String>,
    rebuild_on_change: bool,
    projections: Vec<Result<Arc<dyn InspectProjection<S>>>>,
    reactions: Vec<Reaction>,
    react: Option<React<S>>,
}

/// Registers reactions on a store, under a name.
pub(super) type React<S> =
    fn(S, Vec<Reaction>, String) -> Pin<Box<dyn Future<Output = Result<Registered>> + Send>>;

/// Starts the registered reactions.
pub(super) type Registered = Box<dyn FnOnce() -> Arc<dyn Reacts> + Send>;

/// An application and the reactions to run in it.
pub(super) type Assembled<S> = (App<S>, Vec<Reaction>, Option<React<S>>);

impl<S: Store + ReactionStore> Leftfold<S> {
    /// Adds a reaction to documents. It runs when the application is [started](Self::start). For
    /// more control, use a [`Reactor`](crate::react::Reactor).
    pub fn reaction(mut self, reaction: Reaction) -> Self {
        self.reactions.push(reaction);
        self.react = Some(|store, reactions, worker| {
            Box::pin(async move {
                let reactor =
                    reactions.into_iter().fold(Reactor::on(store).worker(worker), Reactor::reaction);
                let registration = reactor.register().await?;
                let start: Registered = Box::new(|| Arc::new(registration.start()));
                Ok(start)
            })
        });
        self
    }
}

impl<S: Store> Leftfold<S> {
    /// Creates an application on this store, without projections.
    pub fn on(store: S) -> Self {
        Self {
            store,
            env: Arc::new(System),
            options: FoldOptions::default(),
            worker: None,
            rebuild_on_change: false,
            projections: Vec::new(),
            reactions: Vec::new(),
            react: None,
        }
    }

    /// Adds a projection.
    pub fn projection<P: Projection>(mut self, projection: P) -> Self {
        let projection = Running::new(projection).map(|running| {
            let projection: Arc<dyn InspectProjection<S>> = Arc::new(running);
            projection
        });
        self.projections.push(projection);
        self
    }

    /// Adds a projection of another application on the same store. If this application [takes
    /// over](Ready::take_over) from the other one, folding continues without a pause.
    pub fn projection_of(mut self, app: &App<S>, name: &str) -> Self {
        self.projections.push(app.projection(name).cloned());
        self
    }

    /// Sets the options of the projections' workers.
    pub fn options(self, options: FoldOptions) -> Self {
        Self { options, ..self }
    }

    /// Sets a worker name that stays the same after a restart. The process then resumes its work at
    /// once instead of waiting for its own lease to end. Never give two running processes the same
    /// name.
    pub fn worker(self, name: impl Into<String>) -> Self {
        Self { worker: Some(name.into()), ..self }
    }

    /// Sets whether the application, at its start, rebuilds projections whose documents were built
    /// by code of another [version](Projection::version), and switches to the result. Off by
    /// default: then [`App::status`] reports that a rebuild is needed.
    pub fn rebuild_on_change(self, does: bool) -> Self {
        Self { rebuild_on_change: does, ..self }
    }

    /// Sets the source of time and randomness.
    pub fn env(self, env: impl Env) -> Self {
        Self { env: Arc::new(env), ..self }
    }

    /// Opens the application without folding its projections: to append, read and repair beside
    /// workers in other processes.
    pub async fn open(self) -> Result<App<S>> {
        Ok(self.opened().await?.0)
    }

    async fn opened(self) -> Result<Assembled<S>> {
        let assembled = self.assembled()?;
        let Inner { context: WorkerContext { store, env, .. }, projections, .. } = &*assembled.0.0;
        for projection in projections {
            let name = projection.collection();
            store.prepare(name).await?;
            change(store, &**env, name, |known| known.recorded(projection.fingerprint())).await?;
            tidy(store, &**env, name).await?;
        }
        Ok(assembled)
    }

    /// Builds the application without creating anything in the store.
    pub(super) fn assembled(self) -> Result<Assembled<S>> {
        let projections = self.projections.into_iter().collect::<Result<Vec<_>>>()?;
        for (at, projection) in projections.iter().enumerate() {
            let name = projection.collection();
            if projections[..at].iter().any(|other| other.collection() == name) {
                return Err(Invalid::new("projection", name.as_str(), "each name once").into());
            }
        }
        let owner = self.worker.unwrap_or_else(|| event_id(&*self.env).to_string());
        let context = WorkerContext { store: self.store, env: self.env, options: self.options, owner };
        let app = App(Arc::new(Inner {
            context,
            projections,
            workers: Mutex::default(),
            reacting: OnceLock::new(),
        }));
        Ok((app, self.reactions, self.react))
    }

    /// Opens the application, folds its projections and runs its reactions until it is
    /// [stopped](App::stop).
    pub async fn start(self) -> Result<App<S>> {
        Ok(self.ready().await?.start().await)
    }

    /// Opens the application and registers its reactions. Nothing is folded and nothing runs until
    /// [`Ready::start`]. That call can't fail, so one application can replace another that stops in
    /// between.
    pub async fn ready(self) -> Result<Ready<S>> {
        let rebuilds = self.rebuild_on_change;
        let (app, reactions, react) = self.opened().await?;
        let reactions = match react {
            Some(react) => {
                let WorkerContext { store, owner, .. } = &app.0.context;
                Some(react(store.clone(), reactions, owner.clone()).await?)
            }
            None => None,
        };
        Ok(Ready { app, reactions, rebuilds })
    }
}

/// An open application that does not fold its projections yet.
#[must_use = "nothing runs until it is started"]
pub struct Ready<S> {
    app: App<S>,
    reactions: Option<Registered>,
    rebuilds: bool,
}

impl<S: Store> Ready<S> {
    /// Returns the application, to append, read and repair with.
    pub fn app(&self) -> &App<S> {
        &self.app
    }

    /// Takes over the workers of all projections that are [shared](Leftfold::projection_of) with
    /// another application. They keep running while that one stops and this one starts.
    pub async fn take_over(&mut self, from: &App<S>) {
        let mut theirs = from.0.workers.lock().await;
        let is_ours = |worker: &mut Worker<S>| {
            self.app.0.projections.iter().any(|projection| Arc::ptr_eq(projection, &worker.projection))
        };
        let taken: Vec<_> = theirs.extract_if(.., is_ours).collect();
        self.app.0.workers.lock().await.extend(taken);
    }

    /// Folds the projections and runs the reactions until the application is [stopped](App::stop).
    pub async fn start(self) -> App<S> {
        let Self { app, reactions, rebuilds } = self;
        {
            let mut workers = app.0.workers.lock().await;
            for projection in &app.0.projections {
                let known = workers.iter().position(|worker| Arc::ptr_eq(&worker.projection, projection));
                let at = known.unwrap_or_else(|| {
                    workers.push(Worker::start(projection.clone(), app.0.context.clone()));
                    workers.len() - 1
                });
                if rebuilds {
                    workers[at].rebuild_if_changed(app.0.context.clone());
                }
            }
        }
        if let Some(start) = reactions {
            // This is the only place that sets it.
            let _ = app.0.reacting.set(start());
        }
        app
    }
}
