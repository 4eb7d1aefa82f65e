//! A projection without its types, so that an application can hold several, and their common
//! context.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};

use tokio::sync::watch;

use super::folder::Folder;
use super::options::FoldOptions;
use super::projection::Projection;
use super::projector::{Ended, Projector};
use super::pulse::{Pulse, SharedPulse};
use super::repair::RepairOutcome;
use crate::documents::Collection;
use crate::env::Env;
use crate::error::Result;
use crate::event::{DocumentId, Event, StreamId};
use crate::store::Store;

pub(crate) type Work<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The context that all workers of projections share.
#[derive(Clone)]
pub(crate) struct WorkerContext<S> {
    pub(crate) store: S,
    pub(crate) env: Arc<dyn Env>,
    pub(crate) options: FoldOptions,
    pub(crate) owner: String,
}

/// A projection without its types. Each operation works on one generation of its documents.
pub(crate) trait ErasedProjection<S>: Send + Sync {
    fn collection(&self) -> &Collection;
    /// Returns the text that identifies its code.
    fn fingerprint(&self) -> &str;
    /// Returns its observable state, which workers of this process change.
    fn pulse(&self) -> &SharedPulse;
    /// Returns a copy of its observable state.
    fn seen(&self) -> Pulse {
        self.pulse().lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    fn documents_of(&self, event: Event) -> Vec<DocumentId>;
    /// Folds until told to stop, until the generation is frozen, or, with `only_live`, until it is
    /// not live any more.
    fn fold(
        &self,
        context: WorkerContext<S>,
        number: u32,
        only_live: bool,
        pulse: SharedPulse,
        stop: watch::Receiver<bool>,
    ) -> Work<'static, Result<Ended>>;
    fn retry_documents<'a>(
        &'a self,
        context: &'a WorkerContext<S>,
        number: u32,
        ids: Vec<DocumentId>,
        dry_run: bool,
        tell: &'a mut (dyn FnMut(DocumentId, RepairOutcome) + Send),
    ) -> Work<'a, Result<()>>;
    fn retry_stream<'a>(
        &'a self,
        context: &'a WorkerContext<S>,
        number: u32,
        stream: &'a StreamId,
        dry_run: bool,
    ) -> Work<'a, Result<RepairOutcome>>;
    fn refold<'a>(
        &'a self,
        context: &'a WorkerContext<S>,
        number: u32,
        id: &'a DocumentId,
    ) -> Work<'a, Result<RepairOutcome>>;
}

impl<S> dyn ErasedProjection<S> {
    /// Changes the observable state.
    pub(crate) fn show(&self, change: impl FnOnce(&mut Pulse)) {
        change(&mut self.pulse().lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A projection of an application.
pub(crate) struct Running<P> {
    projection: Arc<P>,
    collection: Collection,
    fingerprint: String,
    pulse: SharedPulse,
}

impl<P: Projection> Running<P> {
    pub(crate) fn new(projection: P) -> Result<Self> {
        let collection = Collection::new(projection.name())?;
        let fingerprint = projection.fingerprint().into_owned();
        Ok(Self { projection: Arc::new(projection), collection, fingerprint, pulse: SharedPulse::default() })
    }

    /// Returns the folder of one generation of its documents.
    pub(crate) fn folder(&self, number: u32) -> Result<Folder<Arc<P>>> {
        Folder::of_generation(self.projection.clone(), number)
    }
}

impl<S: Store, P: Projection> ErasedProjection<S> for Running<P> {
    fn collection(&self) -> &Collection {
        &self.collection
    }

    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn pulse(&self) -> &SharedPulse {
        &self.pulse
    }

    fn documents_of(&self, event: Event) -> Vec<DocumentId> {
        let ids = self.folder(0).ok().and_then(|folder| folder.documents_of(event).ok());
        ids.map(|ids| ids.as_slice().to_vec()).unwrap_or_default()
    }

    fn fold(
        &self,
        context: WorkerContext<S>,
        number: u32,
        only_live: bool,
        pulse: SharedPulse,
        stop: watch::Receiver<bool>,
    ) -> Work<'static, Result<Ended>> {
        let folder = self.folder(number);
        Box::pin(async move {
            let WorkerContext { store, env, options, owner } = context;
            let folder = Arc::new(folder?);
            Ok(Projector { store, folder, number, only_live, env, options, owner, pulse }.run(stop).await)
        })
    }

    fn retry_documents<'a>(
        &'a self,
        context: &'a WorkerContext<S>,
        number: u32,
        ids: Vec<DocumentId>,
        dry_run: bool,
        tell: &'a mut (dyn FnMut(DocumentId, RepairOutcome) + Send),
    ) -> Work<'a, Result<()>> {
        Box::pin(async move {
            let folder = self.folder(number)?;
            folder.retry_documents(&context.store, &*context.env, ids, dry_run, tell).await
        })
    }

    fn retry_stream<'a>(
        &'a self,
        context: &'a WorkerContext<S>,
        number: u32,
        stream: &'a StreamId,
        dry_run: bool,
    ) -> Work<'a, Result<RepairOutcome>> {
        Box::pin(async move {
            self.folder(number)?.retry_stream(&context.store, &*context.env, stream, dry_run).await
        })
    }

    fn refold<'a>(
        &'a self,
        context: &'a WorkerContext<S>,
        number: u32,
        id: &'a DocumentId,
    ) -> Work<'a, Result<RepairOutcome>> {
        Box::pin(async move { self.folder(number)?.refold(&context.store, &*context.env, id).await })
    }
}
