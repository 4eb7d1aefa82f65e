//! The main entry point: a store, its projections, and the workers that keep them up to date.

mod builder;
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

pub use self::builder::{Leftfold, Ready};
pub use self::operate::Unit;
use self::worker::Worker;
use crate::documents::{Collection, Get};
use crate::env::event_id;
use crate::error::{Error, Kind, Result};
use crate::event::{Bookmark, DocumentId, Event, NewEvent, StreamId, to_the_microsecond};
use crate::fold::{Projection, WorkerContext};
use crate::inspect::InspectProjection;
use crate::log::{AppendError, Appended, Entry, Expected};
use crate::react::{ReactionStore, ReactorHandle};
use crate::store::Store;

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
