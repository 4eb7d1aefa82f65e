//! The main entry point: a store, its projections, and the workers that keep them up to date.

mod inspect;
mod operate;
mod worker;

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

pub use self::operate::Unit;
use self::worker::Worker;
use crate::documents::{Collection, Get};
use crate::env::{Env, System, event_id};
use crate::error::{Error, Invalid, Kind, Result};
use crate::event::{Bookmark, DocumentId, Event, NewEvent, StreamId, to_the_microsecond};
use crate::fold::{FoldOptions, Projection, Running, WorkerContext};
use crate::inspect::InspectProjection;
use crate::log::{AppendError, Appended, Entry, Expected};
use crate::react::{Reaction, ReactionStore, Reactor, ReactorHandle};
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
type React<S> = fn(S, Vec<Reaction>, String) -> Pin<Box<dyn Future<Output = Result<Registered>> + Send>>;

/// Starts the registered reactions.
type Registered = Box<dyn FnOnce() -> Arc<dyn Reacts> + Send>;

/// An application and the reactions to run in it.
type Assembled<S> = (App<S>, Vec<Reaction>, Option<React<S>>);

/// Running reactions, independent of the store's type.
trait Reacts: Send + Sync {
    fn stop(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    fn as_any(&self) -> &dyn Any;
}

impl<S: ReactionStore> Reacts for ReactorHandle<S> {
    fn stop(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.stop(GRACE))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The time handlers have to finish when the application stops.
const GRACE: Duration = Duration::from_secs(10);

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
    fn assembled(self) -> Result<Assembled<S>> {
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

/// An open application. Cloning returns another handle. When the last handle is dropped, the
/// workers are aborted.
pub struct App<S>(Arc<Inner<S>>);

impl<S> Clone for App<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

struct Inner<S> {
    context: WorkerContext<S>,
    projections: Vec<Arc<dyn InspectProjection<S>>>,
    workers: Mutex<Vec<Worker<S>>>,
    reacting: OnceLock<Arc<dyn Reacts>>,
}

impl<S: Store + ReactionStore> App<S> {
    /// Returns the reactions, if the application was [started](Leftfold::start) with some.
    pub fn reacting(&self) -> Option<&ReactorHandle<S>> {
        self.0.reacting.get()?.as_any().downcast_ref()
    }
}

impl<S: Store> App<S> {
    /// Appends events to a stream at any revision. Give the events ids to make a repetition safe.
    pub async fn append<E: Serialize>(
        &self,
        stream: &str,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Bookmark, AppendError> {
        let events =
            events.into_iter().map(|event| NewEvent::encode(&event)).collect::<Result<Vec<_>, _>>()?;
        Ok(self.append_events(stream, Expected::Any, events).await?.into_bookmark())
    }

    /// Appends events to a stream if the stream is at the expected revision.
    pub async fn append_events(
        &self,
        stream: &str,
        expected: impl Into<Expected>,
        events: Vec<NewEvent>,
    ) -> Result<Appended, AppendError> {
        let env = &*self.0.context.env;
        let entry = |event: NewEvent| Entry {
            id: event.id.unwrap_or_else(|| event_id(env)),
            kind: event.kind,
            time: to_the_microsecond(event.time.unwrap_or_else(|| env.now())),
            data: event.data,
            metadata: event.metadata,
        };
        let entries = events.into_iter().map(entry).collect();
        self.0.context.store.append(StreamId::new(stream)?, expected.into(), entries).await
    }

    #[expect(clippy::needless_pass_by_value, reason = "a unit struct reads better without an ampersand")]
    /// Reads a document as the projection's type. Await it, or let it wait for a bookmark first.
    pub fn get<P: Projection>(&self, projection: P, id: &str) -> Get<S, P::Document> {
        self.get_as(projection.name(), id)
    }

    /// Reads a document of a collection as any type it deserializes to.
    pub fn get_as<D: DeserializeOwned>(&self, collection: &str, id: &str) -> Get<S, D> {
        Get::new(self.0.context.store.clone(), collection, id)
    }

    /// Waits until every projection has folded, or set aside, all events that are in the log now.
    pub async fn caught_up(&self) -> Result<()> {
        let (store, projections) = (&self.0.context.store, &self.0.projections);
        let head = store.heads().await?;
        for projection in projections {
            let mut at = store.checkpoint(projection.collection()).await?.mark;
            while !at.covers(&head) {
                at = store.advanced(projection.collection(), &at).await?;
            }
        }
        Ok(())
    }

    /// Returns the names of the projections.
    pub fn projections(&self) -> impl Iterator<Item = &Collection> {
        self.0.projections.iter().map(|projection| projection.collection())
    }

    /// Returns the documents of a projection that an event belongs to; none if that can't be
    /// determined.
    pub fn documents_of(&self, collection: &str, event: Event) -> Result<Vec<DocumentId>> {
        Ok(self.projection(collection)?.documents_of(event))
    }

    /// Returns the underlying store.
    pub fn store(&self) -> &S {
        &self.0.context.store
    }

    /// Stops the workers: each finishes its current batch, and handlers of reactions have ten
    /// seconds. Waits until they have stopped.
    pub async fn stop(&self) {
        if let Some(reacting) = self.0.reacting.get() {
            reacting.stop().await;
        }
        // Concurrent callers queue here. If this future is dropped, the workers still stop by
        // themselves.
        let mut workers = self.0.workers.lock().await;
        for worker in &*workers {
            worker.stop.send_replace(true);
        }
        for worker in &mut *workers {
            while worker.tasks.join_next().await.is_some() {}
        }
    }

    /// Returns the number of the live generation of a projection.
    async fn live(&self, projection: &Arc<dyn InspectProjection<S>>) -> Result<u32> {
        Ok(self.0.context.store.generations(projection.collection()).await?.live.number)
    }

    fn projection(&self, collection: &str) -> Result<&Arc<dyn InspectProjection<S>>> {
        self.0
            .projections
            .iter()
            .find(|projection| projection.collection().as_str() == collection)
            .ok_or_else(|| {
                let known: Vec<_> =
                    self.0.projections.iter().map(|projection| projection.collection().as_str()).collect();
                let message =
                    format!("no projection is named {collection:?}; there are: {}", known.join(", "));
                Error::new(Kind::Invalid, message)
            })
    }
}
