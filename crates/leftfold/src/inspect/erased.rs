//! Inspection of a projection without its types.

use std::ops::ControlFlow;

use super::as_of::{AsOf, Until};
use super::{Absence, Differing, Explained, Explaining, ExplanationCursor, Sample, Verified};
use crate::error::Result;
use crate::event::DocumentId;
use crate::fold::{ErasedProjection, Projection, Running, Work, WorkerContext};
use crate::json::Json;
use crate::store::Store;

/// A projection that can be inspected. Each operation reads one generation of its documents.
pub(crate) trait InspectProjection<S>: ErasedProjection<S> {
    fn explain<'a>(
        &'a self,
        context: &'a WorkerContext<S>,
        number: u32,
        id: &'a DocumentId,
        until: Option<&'a AsOf>,
        after: Option<&'a ExplanationCursor>,
        tell: &'a mut (dyn FnMut(Explained) -> ControlFlow<()> + Send),
    ) -> Work<'a, Result<Explaining>>;
    fn past<'a>(
        &'a self,
        context: &'a WorkerContext<S>,
        number: u32,
        id: &'a DocumentId,
        moment: &'a AsOf,
    ) -> Work<'a, Result<Option<Json>>>;
    fn why_not<'a>(
        &'a self,
        context: &'a WorkerContext<S>,
        number: u32,
        id: &'a DocumentId,
    ) -> Work<'a, Result<Vec<Absence>>>;
    fn verify<'a>(
        &'a self,
        context: &'a WorkerContext<S>,
        number: u32,
        sample: Sample,
        tell: &'a mut (dyn FnMut(Differing) + Send),
    ) -> Work<'a, Result<Verified>>;
}

impl<S: Store, P: Projection> InspectProjection<S> for Running<P> {
    fn explain<'a>(
        &'a self,
        context: &'a WorkerContext<S>,
        number: u32,
        id: &'a DocumentId,
        until: Option<&'a AsOf>,
        after: Option<&'a ExplanationCursor>,
        tell: &'a mut (dyn FnMut(Explained) -> ControlFlow<()> + Send),
    ) -> Work<'a, Result<Explaining>> {
        Box::pin(async move {
            let (folder, store) = (self.folder(number)?, &context.store);
            let until = match until {
                None => Until::Now,
                Some(moment) => Until::find(moment, id, folder.routes_by_stream(), store).await?,
            };
            folder.explain(store, id, until, after, tell).await
        })
    }

    fn past<'a>(
        &'a self,
        context: &'a WorkerContext<S>,
        number: u32,
        id: &'a DocumentId,
        moment: &'a AsOf,
    ) -> Work<'a, Result<Option<Json>>> {
        Box::pin(async move {
            let (folder, store) = (self.folder(number)?, &context.store);
            let until = Until::find(moment, id, folder.routes_by_stream(), store).await?;
            folder.past(store, id, until).await
        })
    }

    fn why_not<'a>(
        &'a self,
        context: &'a WorkerContext<S>,
        number: u32,
        id: &'a DocumentId,
    ) -> Work<'a, Result<Vec<Absence>>> {
        Box::pin(async move { self.folder(number)?.why_not(&context.store, id).await })
    }

    fn verify<'a>(
        &'a self,
        context: &'a WorkerContext<S>,
        number: u32,
        sample: Sample,
        tell: &'a mut (dyn FnMut(Differing) + Send),
    ) -> Work<'a, Result<Verified>> {
        Box::pin(
            async move { self.folder(number)?.verify(&context.store, &*context.env, sample, tell).await },
        )
    }
}
