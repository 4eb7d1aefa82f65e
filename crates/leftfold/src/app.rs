//! The main entry point: a store, its projections, and the workers that keep them up to date.

mod looking;
mod vitals;
mod worker;

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

pub use self::vitals::Vitals;
use self::worker::Worker;
use crate::doctor::{self, Examine, Finding};
use crate::documents::{Collection, Parked, Store};
use crate::env::{Env, System, event_id};
use crate::error::{Error, Invalid, Kind, Result};
use crate::event::{Bookmark, DocumentId, Event, NewEvent, Position, StreamId};
use crate::fold::{
    Differing, FoldOptions, Mended, Occurrence, Projection, ProjectionStatus, Pulse, Sample, SlowFold,
    Verified, distance,
};
use crate::log::{AppendError, Appended, Entry, Expected, Limit};
use crate::mark::Mark;
use crate::part::{ErasedProjection, Running, WorkerContext};
use crate::react::{Reaction, ReactionStore, Reactor, ReactorHandle};
use crate::read::Get;
use crate::rebuild::{self, Rebuild, change, tidy};
use crate::sequence::Sequences;

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
    projections: Vec<Result<Arc<dyn ErasedProjection<S>>>>,
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
        let part = Running::new(projection).map(|running| {
            let part: Arc<dyn ErasedProjection<S>> = Arc::new(running);
            part
        });
        self.projections.push(part);
        self
    }

    /// Adds a projection of another application on the same store. If this application [takes
    /// over](Ready::take_over) from the other one, folding continues without a pause.
    pub fn projection_of(mut self, app: &App<S>, name: &str) -> Self {
        self.projections.push(app.part(name).cloned());
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
        let Inner { setting: WorkerContext { store, env, .. }, parts, .. } = &*assembled.0.0;
        for part in parts {
            let name = part.collection();
            store.prepare(name).await?;
            change(store, &**env, name, |known| known.recorded(part.fingerprint())).await?;
            tidy(store, &**env, name).await?;
        }
        Ok(assembled)
    }

    /// Builds the application without creating anything in the store.
    fn assembled(self) -> Result<Assembled<S>> {
        let parts = self.projections.into_iter().collect::<Result<Vec<_>>>()?;
        for (at, part) in parts.iter().enumerate() {
            let name = part.collection();
            if parts[..at].iter().any(|other| other.collection() == name) {
                return Err(Invalid::new("projection", name.as_str(), "each name once").into());
            }
        }
        let owner = self.worker.unwrap_or_else(|| event_id(&*self.env).to_string());
        let setting = WorkerContext { store: self.store, env: self.env, options: self.options, owner };
        let app =
            App(Arc::new(Inner { setting, parts, workers: Mutex::default(), reacting: OnceLock::new() }));
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
                let WorkerContext { store, owner, .. } = &app.0.setting;
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
        let is_ours =
            |worker: &mut Worker<S>| self.app.0.parts.iter().any(|part| Arc::ptr_eq(part, &worker.part));
        let taken: Vec<_> = theirs.extract_if(.., is_ours).collect();
        self.app.0.workers.lock().await.extend(taken);
    }

    /// Folds the projections and runs the reactions until the application is [stopped](App::stop).
    pub async fn start(self) -> App<S> {
        let Self { app, reactions, rebuilds } = self;
        {
            let mut workers = app.0.workers.lock().await;
            for part in &app.0.parts {
                let known = workers.iter().position(|worker| Arc::ptr_eq(&worker.part, part));
                let at = known.unwrap_or_else(|| {
                    workers.push(Worker::start(part.clone(), app.0.setting.clone()));
                    workers.len() - 1
                });
                if rebuilds {
                    workers[at].rebuild_if_changed(app.0.setting.clone());
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
    setting: WorkerContext<S>,
    parts: Vec<Arc<dyn ErasedProjection<S>>>,
    workers: Mutex<Vec<Worker<S>>>,
    reacting: OnceLock<Arc<dyn Reacts>>,
}

impl<S: Store + Sequences + Examine> Leftfold<S> {
    /// Runs the checks of [`App::doctor`] without opening the application first, so that nothing
    /// missing is created.
    pub async fn doctor(self) -> Result<Vec<Finding>> {
        self.assembled()?.0.doctor().await
    }
}

impl<S: Store + Sequences + Examine> App<S> {
    /// Checks the store, the projections, the deliveries held before the log, and the reactions.
    /// Each [finding](Finding) that is not fine says what to do; see [`doctor`]. The check changes
    /// no data. It claims the lease of an idle projection for zero time and releases it.
    pub async fn doctor(&self) -> Result<Vec<Finding>> {
        let mut findings = doctor::look_over(&self.0.setting).await?;
        for part in &self.0.parts {
            let status = async || self.status_of(part, self.store().heads().await?).await;
            findings.extend(doctor::look_at(&self.0.setting, part.collection(), status).await);
        }
        Ok(findings)
    }
}

impl<S: Store + ReactionStore> App<S> {
    /// Returns the reactions, if the application was [started](Leftfold::start) with some.
    pub fn reacting(&self) -> Option<&ReactorHandle<S>> {
        self.0.reacting.get()?.as_any().downcast_ref()
    }
}

/// A document or stream that can be parked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// A document.
    Document(DocumentId),
    /// A stream, for projections that do not route by stream.
    Stream(StreamId),
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
        let env = &*self.0.setting.env;
        let entry = |event: NewEvent| Entry {
            id: event.id.unwrap_or_else(|| event_id(env)),
            kind: event.kind,
            time: to_the_microsecond(event.time.unwrap_or_else(|| env.now())),
            data: event.data,
            metadata: event.metadata,
        };
        let entries = events.into_iter().map(entry).collect();
        self.0.setting.store.append(StreamId::new(stream)?, expected.into(), entries).await
    }

    #[expect(clippy::needless_pass_by_value, reason = "a unit struct reads better without an ampersand")]
    /// Reads a document as the projection's type. Await it, or let it wait for a bookmark first.
    pub fn get<P: Projection>(&self, projection: P, id: &str) -> Get<S, P::Document> {
        self.get_as(projection.name(), id)
    }

    /// Reads a document of a collection as any type it deserializes to.
    pub fn get_as<D: DeserializeOwned>(&self, collection: &str, id: &str) -> Get<S, D> {
        Get::new(self.0.setting.store.clone(), collection, id)
    }

    /// Returns the status of all projections.
    pub async fn status(&self) -> Result<Vec<ProjectionStatus>> {
        let head = self.0.setting.store.heads().await?;
        let mut all = Vec::new();
        for part in &self.0.parts {
            all.push(self.status_of(part, head.clone()).await?);
        }
        Ok(all)
    }

    async fn status_of(&self, part: &Arc<dyn ErasedProjection<S>>, head: Mark) -> Result<ProjectionStatus> {
        let (store, name) = (&self.0.setting.store, part.collection());
        let checkpoint = store.checkpoint(name).await?;
        let counts = store.count(name).await?;
        let streams = store.count(&name.streams()).await?;
        let pulse = part.seen();
        let generations = store.generations(name).await?;
        let behind_since = self.behind_since(&checkpoint.mark, &head).await?;
        let folding = self.slow_fold(&pulse).await?;
        let mut tally = checkpoint.tally;
        tally.last_error = pulse.last_error.or(tally.last_error);
        Ok(ProjectionStatus {
            projection: name.to_string(),
            activity: pulse.activity,
            lag: distance(&checkpoint.mark, &head),
            position: checkpoint.mark,
            head,
            events_per_second: pulse.events_per_second,
            documents: counts.documents,
            parked_documents: counts.parked,
            parked_streams: streams.parked,
            version: part.fingerprint().to_owned(),
            rebuild_needed: generations.differs(part.fingerprint()),
            generations,
            tally,
            behind_since,
            parked_since: [counts.parked_since, streams.parked_since].into_iter().flatten().min(),
            folding,
            figures: pulse.figures,
        })
    }

    /// Returns the event that a projection has been folding for longer than a second.
    async fn slow_fold(&self, pulse: &Pulse) -> Result<Option<SlowFold>> {
        const LONG: Duration = Duration::from_secs(1);
        let slow = pulse.folding.as_ref().and_then(|folding| folding.longer_than(LONG));
        let Some((partition, position, took)) = slow else { return Ok(None) };
        let (after, one) = (Position(position.0.saturating_sub(1)), Limit { events: 1, ..Limit::default() });
        let page = self.store().read(partition, after, one).await?;
        let event = page.events.first().map(Occurrence::of);
        Ok(event.map(|event| SlowFold { event, seconds: took.as_secs() }))
    }

    /// Returns the earliest time of the next unread events of all partitions after a mark.
    async fn behind_since(&self, mark: &Mark, head: &Mark) -> Result<Option<Timestamp>> {
        let (store, one) = (&self.0.setting.store, Limit { events: 1, ..Limit::default() });
        let mut since = None;
        for (lane, end) in head.lanes() {
            let Some(partition) = lane.partition().filter(|_| mark.get(lane) < end) else { continue };
            let page = store.read(partition, mark.position(partition), one).await?;
            since = since.into_iter().chain(page.events.first().map(|event| event.time)).min();
        }
        Ok(since)
    }

    /// Waits until every projection has folded, or set aside, all events that are in the log now.
    pub async fn caught_up(&self) -> Result<()> {
        let (store, parts) = (&self.0.setting.store, &self.0.parts);
        let head = store.heads().await?;
        for part in parts {
            let mut at = store.checkpoint(part.collection()).await?.mark;
            while !at.covers(&head) {
                at = store.advanced(part.collection(), &at).await?;
            }
        }
        Ok(())
    }

    /// Returns at most `most` parked units of a projection, after a unit: streams first, then
    /// documents by id.
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
            for record in self.0.setting.store.parked(&name.streams(), after, most).await? {
                let unit = Unit::Stream(StreamId::new(&record.id)?);
                found.extend(record.header.parked.map(|parked| (unit, *parked)));
            }
        }
        let after = match after {
            Some(Unit::Document(id)) => Some(id.clone()),
            _ => None,
        };
        let left = most.saturating_sub(found.len());
        for record in self.0.setting.store.parked(name, after, left).await? {
            found.extend(record.header.parked.map(|parked| (Unit::Document(record.id), *parked)));
        }
        Ok(found)
    }

    /// Retries a parked unit with the current code and unparks it. A document is folded from its
    /// failing event on; the documents of a stream are folded again. With `dry_run`, nothing is
    /// written and the answer says what would happen.
    pub async fn retry(&self, collection: &str, unit: &Unit, dry_run: bool) -> Result<Mended> {
        let mut answer = Mended::NotParked;
        self.retry_some(collection, vec![unit.clone()], dry_run, |_, mended| answer = mended.clone()).await?;
        Ok(answer)
    }

    /// Retries several parked units, documents together. `tell` receives the result of each.
    pub async fn retry_some(
        &self,
        collection: &str,
        units: Vec<Unit>,
        dry_run: bool,
        mut tell: impl FnMut(&Unit, &Mended) + Send,
    ) -> Result<()> {
        let (part, setting) = (self.part(collection)?, &self.0.setting);
        let mut documents = Vec::new();
        for unit in units {
            match unit {
                Unit::Stream(stream) => {
                    let mut live = self.live(part).await?;
                    let mended = loop {
                        let mended = part.retry_stream(setting, live, &stream, dry_run).await?;
                        if !self.is_switched(part, &mut live).await? {
                            break mended;
                        }
                    };
                    tell(&Unit::Stream(stream), &mended);
                }
                Unit::Document(id) => documents.push(id),
            }
        }
        let mut live = self.live(part).await?;
        let mut answers;
        loop {
            answers = Vec::with_capacity(documents.len());
            let mut hear = |id, mended| answers.push((id, mended));
            part.retry_documents(setting, live, documents.clone(), dry_run, &mut hear).await?;
            if !self.is_switched(part, &mut live).await? {
                break;
            }
        }
        for (id, mended) in answers {
            tell(&Unit::Document(id), &mended);
        }
        Ok(())
    }

    /// Returns the number of the live generation of a projection.
    async fn live(&self, part: &Arc<dyn ErasedProjection<S>>) -> Result<u32> {
        Ok(self.0.setting.store.generations(part.collection()).await?.live.number)
    }

    /// Returns whether another generation is live by now. If so, the caller has repaired a
    /// generation that nobody reads.
    async fn is_switched(&self, part: &Arc<dyn ErasedProjection<S>>, live: &mut u32) -> Result<bool> {
        let before = std::mem::replace(live, self.live(part).await?);
        Ok(before != *live)
    }

    /// Retries every parked unit of a projection. `tell` receives the result of each.
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

    /// Returns the names of the projections.
    pub fn projections(&self) -> impl Iterator<Item = &Collection> {
        self.0.parts.iter().map(|part| part.collection())
    }

    /// Returns the documents of a projection that an event belongs to; none if that can't be
    /// determined.
    pub fn documents_of(&self, collection: &str, event: Event) -> Result<Vec<DocumentId>> {
        Ok(self.part(collection)?.documents_of(event))
    }

    /// Folds one document again from its first event and replaces it under guard. If the fold
    /// fails, the document stays as it is.
    pub async fn refold(&self, collection: &str, id: &str) -> Result<Mended> {
        let (part, id) = (self.part(collection)?, DocumentId::new(id)?);
        let mut live = self.live(part).await?;
        loop {
            let mended = part.refold(&self.0.setting, live, &id).await?;
            if !self.is_switched(part, &mut live).await? {
                return Ok(mended);
            }
        }
    }

    /// Folds documents again from the log and compares them with the stored ones. Each is folded as
    /// far as it had come when it was read, so concurrent appends do not matter. Nothing is
    /// changed. `tell` receives each document that differs. Parked documents are only counted;
    /// [`parked`](Self::parked) lists them.
    pub async fn verify(
        &self,
        collection: &str,
        sample: Sample,
        mut tell: impl FnMut(Differing) + Send,
    ) -> Result<Verified> {
        let part = self.part(collection)?;
        let live = self.live(part).await?;
        part.verify(&self.0.setting, live, sample, &mut tell).await
    }

    /// Begins to rebuild a projection with the current code, beside the live documents. If code of
    /// the same version has begun a rebuild, this resumes it. Readers see none of it until the
    /// [switch](Rebuild::switch).
    pub async fn rebuild(&self, collection: &str) -> Result<Rebuild<S>> {
        Rebuild::begin(self.part(collection)?.clone(), self.0.setting.clone()).await
    }

    /// Switches back to the documents that were live before the last rebuild, once they have caught
    /// up. A second undo switches forward again. If possible, run it with the code that built them,
    /// because the current code folds the events they have missed and all later ones.
    pub async fn undo(&self, collection: &str) -> Result<()> {
        rebuild::undo(self.part(collection)?, &self.0.setting).await
    }

    /// Cancels the rebuild under way, whichever process began it. Returns whether there was one.
    pub async fn cancel_rebuild(&self, collection: &str) -> Result<bool> {
        let name = self.part(collection)?.collection();
        let WorkerContext { store, env, .. } = &self.0.setting;
        let before = store.generations(name).await?;
        let after = change(store, &**env, name, crate::documents::Generations::cancelled).await?;
        tidy(store, &**env, name).await?;
        Ok(after.revision != before.revision)
    }

    /// Deletes the documents that were kept for an [undo](Self::undo). Returns whether there were
    /// any.
    pub async fn forget_kept(&self, collection: &str) -> Result<bool> {
        let name = self.part(collection)?.collection();
        let WorkerContext { store, env, .. } = &self.0.setting;
        let before = store.generations(name).await?;
        let after = change(store, &**env, name, crate::documents::Generations::without_kept).await?;
        tidy(store, &**env, name).await?;
        Ok(after.revision != before.revision)
    }

    /// Returns the underlying store.
    pub fn store(&self) -> &S {
        &self.0.setting.store
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

    fn part(&self, collection: &str) -> Result<&Arc<dyn ErasedProjection<S>>> {
        self.0.parts.iter().find(|part| part.collection().as_str() == collection).ok_or_else(|| {
            let known: Vec<_> = self.0.parts.iter().map(|part| part.collection().as_str()).collect();
            let message = format!("no projection is named {collection:?}; there are: {}", known.join(", "));
            Error::new(Kind::Invalid, message)
        })
    }
}

pub(crate) fn to_the_microsecond(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}
