//! The front door: a store, the projections on it, and the workers that keep them up to date.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

use crate::documents::{Collection, Parked, Store};
use crate::env::{Env, System, event_id};
use crate::error::{Error, Invalid, Kind, Result};
use crate::event::{DocumentId, Event, NewEvent, StreamId, Token};
use crate::fold::{
    Explained, Folder, Mended, Options, Projection, Projector, Pulse, SharedPulse, Status, distance,
};
use crate::log::{AppendError, Appended, Entry, Expected};
use crate::react::{Reacting, Reaction, Reactive, Reactor};
use crate::read::Get;

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
/// let token = app.append("cart-42", [Cart::ItemAdded { product: "shoes".into(), quantity: 2 }]).await?;
/// let cart = app.get(CartDetails, "cart-42").at_least(token).await?;      // read your own write
/// assert_eq!(cart, Some(Details { items: 2 }));
/// app.stop().await;
/// # Ok(()) }
/// ```
#[must_use = "nothing runs until it is opened or started"]
pub struct Leftfold<S> {
    store: S,
    env: Arc<dyn Env>,
    options: Options,
    worker: Option<String>,
    projections: Vec<Result<Arc<dyn Part<S>>>>,
    reactions: Vec<Reaction>,
    react: Option<React<S>>,
}

/// Starts reactions on a store, under a name.
type React<S> = fn(S, Vec<Reaction>, String) -> Pin<Box<dyn Future<Output = Result<Arc<dyn Reacts>>> + Send>>;

/// Reactions at work, whatever the store.
trait Reacts: Send + Sync {
    fn stop(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    fn as_any(&self) -> &dyn Any;
}

impl<S: Reactive> Reacts for Reacting<S> {
    fn stop(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.stop(GRACE))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// How long handlers have to end when the application stops.
const GRACE: std::time::Duration = std::time::Duration::from_secs(10);

impl<S: Store + Reactive> Leftfold<S> {
    /// Adds a reaction to documents. It runs when the application is [started](Self::start); who wants more of a say makes a
    /// [`Reactor`](crate::react::Reactor).
    pub fn reaction(mut self, reaction: Reaction) -> Self {
        self.reactions.push(reaction);
        self.react = Some(|store, reactions, worker| {
            Box::pin(async move {
                let reactor =
                    reactions.into_iter().fold(Reactor::on(store).worker(worker), Reactor::reaction);
                let reacting: Arc<dyn Reacts> = Arc::new(reactor.start().await?);
                Ok(reacting)
            })
        });
        self
    }
}

impl<S: Store> Leftfold<S> {
    /// An application on this store, without projections yet.
    pub fn on(store: S) -> Self {
        Self {
            store,
            env: Arc::new(System),
            options: Options::default(),
            worker: None,
            projections: Vec::new(),
            reactions: Vec::new(),
            react: None,
        }
    }

    /// Adds a projection.
    pub fn projection<P: Projection>(mut self, projection: P) -> Self {
        let part = Folder::new(projection).map(|folder| {
            let part: Arc<dyn Part<S>> =
                Arc::new(Running { folder: Arc::new(folder), pulse: SharedPulse::default() });
            part
        });
        self.projections.push(part);
        self
    }

    /// How the projections are worked on.
    pub fn options(self, options: Options) -> Self {
        Self { options, ..self }
    }

    /// The name under which this process works, if it should have the same after a restart: it then takes up its
    /// work at once instead of waiting for its own lease to end. Never give two living processes the same name.
    pub fn worker(self, name: impl Into<String>) -> Self {
        Self { worker: Some(name.into()), ..self }
    }

    /// Where time and chance come from.
    pub fn env(self, env: impl Env) -> Self {
        Self { env: Arc::new(env), ..self }
    }

    /// Opens the application without working on its projections: to append, read and mend beside workers elsewhere.
    pub async fn open(self) -> Result<App<S>> {
        Ok(self.opened().await?.0)
    }

    async fn opened(self) -> Result<(App<S>, Vec<Reaction>, Option<React<S>>)> {
        let parts = self.projections.into_iter().collect::<Result<Vec<_>>>()?;
        for (at, part) in parts.iter().enumerate() {
            let name = part.collection();
            if parts[..at].iter().any(|other| other.collection() == name) {
                return Err(Invalid::new("projection", name.as_str(), "each name once").into());
            }
            self.store.prepare(name).await?;
        }
        let owner = self.worker.unwrap_or_else(|| event_id(&*self.env).to_string());
        let (stop, _) = watch::channel(false);
        let app = App(Arc::new(Inner {
            store: self.store,
            env: self.env,
            options: self.options,
            owner,
            parts,
            stop,
            workers: Mutex::new(JoinSet::new()),
            reacting: OnceLock::new(),
        }));
        Ok((app, self.reactions, self.react))
    }

    /// Opens the application, works on its projections and runs its reactions until it is [stopped](App::stop).
    pub async fn start(self) -> Result<App<S>> {
        let (app, reactions, react) = self.opened().await?;
        {
            let mut workers = app.0.workers.lock().await;
            for part in &app.0.parts {
                workers.spawn(part.clone().run(&app.0));
            }
        }
        if let Some(react) = react {
            let reacting = react(app.0.store.clone(), reactions, app.0.owner.clone()).await?;
            // It is set once, here.
            let _ = app.0.reacting.set(reacting);
        }
        Ok(app)
    }
}

/// An open application. Cloning gives another handle; when the last is gone, its workers end where they are.
pub struct App<S>(Arc<Inner<S>>);

impl<S> Clone for App<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

struct Inner<S> {
    store: S,
    env: Arc<dyn Env>,
    options: Options,
    owner: String,
    parts: Vec<Arc<dyn Part<S>>>,
    stop: watch::Sender<bool>,
    workers: Mutex<JoinSet<()>>,
    reacting: OnceLock<Arc<dyn Reacts>>,
}

impl<S: Store + Reactive> App<S> {
    /// Its reactions, if it was [started](Leftfold::start) with some.
    pub fn reacting(&self) -> Option<&Reacting<S>> {
        self.0.reacting.get()?.as_any().downcast_ref()
    }
}

/// What is parked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// A document.
    Document(DocumentId),
    /// A stream, for a projection that does not route by stream.
    Stream(StreamId),
}

impl<S: Store> App<S> {
    /// Appends events to a stream, whatever its revision is. Give them ids to make it safe to repeat.
    pub async fn append<E: Serialize>(
        &self,
        stream: &str,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Token, AppendError> {
        let events =
            events.into_iter().map(|event| NewEvent::encode(&event)).collect::<Result<Vec<_>, _>>()?;
        Ok(self.append_events(stream, Expected::Any, events).await?.into_token())
    }

    /// Appends events to a stream if it is at the expected revision.
    pub async fn append_events(
        &self,
        stream: &str,
        expected: impl Into<Expected>,
        events: Vec<NewEvent>,
    ) -> Result<Appended, AppendError> {
        let env = &*self.0.env;
        let entry = |event: NewEvent| Entry {
            id: event.id.unwrap_or_else(|| event_id(env)),
            kind: event.kind,
            time: to_the_microsecond(event.time.unwrap_or_else(|| env.now())),
            data: event.data,
            metadata: event.metadata,
        };
        let entries = events.into_iter().map(entry).collect();
        self.0.store.append(StreamId::new(stream)?, expected.into(), entries).await
    }

    #[expect(clippy::needless_pass_by_value, reason = "a unit struct reads better without an ampersand")]
    /// A document, as the projection's type. Await it, or let it wait for a token first.
    pub fn get<P: Projection>(&self, projection: P, id: &str) -> Get<S, P::Document> {
        self.get_as(projection.name(), id)
    }

    /// A document of a collection, as any type it can be read as.
    pub fn get_as<D: DeserializeOwned>(&self, collection: &str, id: &str) -> Get<S, D> {
        Get::new(self.0.store.clone(), collection, id)
    }

    /// How all projections are doing.
    pub async fn status(&self) -> Result<Vec<Status>> {
        let Inner { store, parts, .. } = &*self.0;
        let head = store.heads().await?;
        let mut all = Vec::new();
        for part in parts {
            let name = part.collection();
            let checkpoint = store.checkpoint(name).await?;
            let counts = store.count(name).await?;
            let streams = store.count(&name.streams()).await?;
            let pulse = part.pulse();
            let mut tally = checkpoint.tally;
            tally.last_error = pulse.last_error.or(tally.last_error);
            all.push(Status {
                projection: name.to_string(),
                activity: pulse.activity,
                lag: distance(&checkpoint.mark, &head),
                position: checkpoint.mark,
                head: head.clone(),
                events_per_second: pulse.events_per_second,
                documents: counts.documents,
                parked_documents: counts.parked,
                parked_streams: streams.parked,
                tally,
            });
        }
        Ok(all)
    }

    /// Waits until every projection has folded, or set aside, all that is in the log now.
    pub async fn caught_up(&self) -> Result<()> {
        let Inner { store, parts, .. } = &*self.0;
        let head = store.heads().await?;
        for part in parts {
            let mut at = store.checkpoint(part.collection()).await?.mark;
            while !at.covers(&head) {
                at = store.advanced(part.collection(), &at).await?;
            }
        }
        Ok(())
    }

    /// What a projection has parked: streams, then documents by id, `most` of them at the most, after a unit.
    pub async fn parked(
        &self,
        collection: &str,
        after: Option<&Unit>,
        most: usize,
    ) -> Result<Vec<(Unit, Parked)>> {
        let name = self.part(collection)?.collection();
        let mut found = Vec::new();
        if !matches!(after, Some(Unit::Document(_))) {
            let after = match after {
                Some(Unit::Stream(stream)) => Some(DocumentId::from(stream)),
                _ => None,
            };
            for record in self.0.store.parked(&name.streams(), after, most).await? {
                let unit = Unit::Stream(StreamId::new(&record.id)?);
                found.extend(record.header.parked.map(|parked| (unit, *parked)));
            }
        }
        let after = match after {
            Some(Unit::Document(id)) => Some(id.clone()),
            _ => None,
        };
        let left = most.saturating_sub(found.len());
        for record in self.0.store.parked(name, after, left).await? {
            found.extend(record.header.parked.map(|parked| (Unit::Document(record.id), *parked)));
        }
        Ok(found)
    }

    /// Tries again what is parked: folds a document from its failing event on, or folds a stream's documents anew,
    /// with the code as it is now, and unparks it. With `dry_run` nothing is written and the answer says what would
    /// be.
    pub async fn retry(&self, collection: &str, unit: &Unit, dry_run: bool) -> Result<Mended> {
        let mut answer = Mended::NotParked;
        self.retry_some(collection, vec![unit.clone()], dry_run, |_, mended| answer = mended.clone()).await?;
        Ok(answer)
    }

    /// Tries again several things that are parked, documents together; `tell` hears what became of each.
    pub async fn retry_some(
        &self,
        collection: &str,
        units: Vec<Unit>,
        dry_run: bool,
        mut tell: impl FnMut(&Unit, &Mended) + Send,
    ) -> Result<()> {
        let part = self.part(collection)?;
        let mut documents = Vec::new();
        for unit in units {
            match unit {
                Unit::Stream(stream) => {
                    let mended = part.retry_stream(&self.0, &stream, dry_run).await?;
                    tell(&Unit::Stream(stream), &mended);
                }
                Unit::Document(id) => documents.push(id),
            }
        }
        let mut tell = |id, mended| tell(&Unit::Document(id), &mended);
        part.retry_documents(&self.0, documents, dry_run, &mut tell).await
    }

    /// Tries again everything a projection has parked; `tell` hears what became of each.
    pub async fn retry_all(
        &self,
        collection: &str,
        dry_run: bool,
        mut tell: impl FnMut(&Unit, &Mended) + Send,
    ) -> Result<()> {
        const PAGE: usize = 100;
        let mut after = None;
        loop {
            let page = self.parked(collection, after.as_ref(), PAGE).await?;
            let units: Vec<_> = page.into_iter().map(|(unit, _)| unit).collect();
            let Some(last) = units.last().cloned() else { return Ok(()) };
            self.retry_some(collection, units, dry_run, &mut tell).await?;
            after = Some(last);
        }
    }

    /// The names of the projections.
    pub fn projections(&self) -> impl Iterator<Item = &Collection> {
        self.0.parts.iter().map(|part| part.collection())
    }

    /// Which documents of a projection an event belongs to; none, where that can't be told.
    pub fn documents_of(&self, collection: &str, event: Event) -> Result<Vec<DocumentId>> {
        Ok(self.part(collection)?.documents_of(event))
    }

    /// Folds one document anew from its first event and swaps it in under guard; one whose fold fails stays as it is.
    pub async fn refold(&self, collection: &str, id: &str) -> Result<Mended> {
        self.part(collection)?.refold(&self.0, &DocumentId::new(id)?).await
    }

    /// Tells every event that made a document, and what each changed. `false` if there never was such a document.
    pub async fn explain(
        &self,
        collection: &str,
        id: &str,
        mut tell: impl FnMut(Explained) + Send,
    ) -> Result<bool> {
        self.part(collection)?.explain(&self.0, &DocumentId::new(id)?, &mut tell).await
    }

    /// The store below.
    pub fn store(&self) -> &S {
        &self.0.store
    }

    /// Ends the workers: each finishes the batch in hand, and handlers of reactions have ten seconds. Waits until they have.
    pub async fn stop(&self) {
        if let Some(reacting) = self.0.reacting.get() {
            reacting.stop().await;
        }
        self.0.stop.send_replace(true);
        // Whoever else waits does so in line; who gives up waiting leaves the workers to end by themselves.
        let mut workers = self.0.workers.lock().await;
        while workers.join_next().await.is_some() {}
    }

    fn part(&self, collection: &str) -> Result<&Arc<dyn Part<S>>> {
        self.0.parts.iter().find(|part| part.collection().as_str() == collection).ok_or_else(|| {
            let known: Vec<_> = self.0.parts.iter().map(|part| part.collection().as_str()).collect();
            let message = format!("no projection is named {collection:?}; there are: {}", known.join(", "));
            Error::new(Kind::Invalid, message)
        })
    }
}

pub(crate) fn to_the_microsecond(time: jiff::Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

type Work<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A projection without its types, so that an application can hold several.
trait Part<S>: Send + Sync {
    fn collection(&self) -> &Collection;
    fn pulse(&self) -> Pulse;
    fn run(self: Arc<Self>, app: &Inner<S>) -> Work<'static, ()>;
    fn documents_of(&self, event: Event) -> Vec<DocumentId>;
    fn retry_documents<'a>(
        &'a self,
        app: &'a Inner<S>,
        ids: Vec<DocumentId>,
        dry_run: bool,
        tell: &'a mut (dyn FnMut(DocumentId, Mended) + Send),
    ) -> Work<'a, Result<()>>;
    fn retry_stream<'a>(
        &'a self,
        app: &'a Inner<S>,
        stream: &'a StreamId,
        dry_run: bool,
    ) -> Work<'a, Result<Mended>>;
    fn refold<'a>(&'a self, app: &'a Inner<S>, id: &'a DocumentId) -> Work<'a, Result<Mended>>;
    fn explain<'a>(
        &'a self,
        app: &'a Inner<S>,
        id: &'a DocumentId,
        tell: &'a mut (dyn FnMut(Explained) + Send),
    ) -> Work<'a, Result<bool>>;
}

struct Running<P: Projection> {
    folder: Arc<Folder<P>>,
    pulse: SharedPulse,
}

impl<S: Store, P: Projection> Part<S> for Running<P> {
    fn collection(&self) -> &Collection {
        &self.folder.collection
    }

    fn pulse(&self) -> Pulse {
        self.pulse.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn documents_of(&self, event: Event) -> Vec<DocumentId> {
        self.folder.documents_of(event).map(|ids| ids.as_slice().to_vec()).unwrap_or_default()
    }

    fn run(self: Arc<Self>, app: &Inner<S>) -> Work<'static, ()> {
        let projector = Projector {
            store: app.store.clone(),
            folder: self.folder.clone(),
            env: app.env.clone(),
            options: app.options.clone(),
            owner: app.owner.clone(),
            pulse: self.pulse.clone(),
        };
        Box::pin(projector.run(app.stop.subscribe()))
    }

    fn retry_documents<'a>(
        &'a self,
        app: &'a Inner<S>,
        ids: Vec<DocumentId>,
        dry_run: bool,
        tell: &'a mut (dyn FnMut(DocumentId, Mended) + Send),
    ) -> Work<'a, Result<()>> {
        Box::pin(self.folder.retry_documents(&app.store, &*app.env, ids, dry_run, tell))
    }

    fn retry_stream<'a>(
        &'a self,
        app: &'a Inner<S>,
        stream: &'a StreamId,
        dry_run: bool,
    ) -> Work<'a, Result<Mended>> {
        Box::pin(self.folder.retry_stream(&app.store, &*app.env, stream, dry_run))
    }

    fn refold<'a>(&'a self, app: &'a Inner<S>, id: &'a DocumentId) -> Work<'a, Result<Mended>> {
        Box::pin(self.folder.refold(&app.store, &*app.env, id))
    }

    fn explain<'a>(
        &'a self,
        app: &'a Inner<S>,
        id: &'a DocumentId,
        tell: &'a mut (dyn FnMut(Explained) + Send),
    ) -> Work<'a, Result<bool>> {
        Box::pin(self.folder.explain(&app.store, &*app.env, id, tell))
    }
}
