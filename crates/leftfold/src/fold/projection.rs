//! The trait that users implement to turn events into documents.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{DocumentIds, Error, Route};
use crate::error::Invalid;
use crate::event::{DocumentId, Event, EventKind};

/// A pure function from events to documents.
///
/// `fold` must depend only on its arguments. It is called again after a crash, a conflict or a
/// repair, and must return the same document. [`testing::spec`](crate::testing::spec) checks that.
///
/// ```
/// use leftfold::{Event, Projection, fold};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Deserialize)]
/// #[serde(rename_all = "kebab-case")]
/// enum Counted { Incremented { by: u64 }, Removed }
///
/// #[derive(Serialize, Deserialize)]
/// struct Total { sum: u64 }
///
/// struct Totals;
/// impl Projection for Totals {
///     type Event = Counted;
///     type Document = Total;
///     fn name(&self) -> &str { "totals" }
///     fn fold(&self, total: Option<Total>, event: &Event<Counted>) -> Result<Option<Total>, fold::Error> {
///         let sum = total.map_or(0, |total| total.sum);
///         Ok(match event.data {
///             Counted::Incremented { by } => Some(Total { sum: sum + by }),
///             Counted::Removed => None,
///         })
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a projection",
    note = "implement `leftfold::Projection`: name the event enum, the document type, and write `fold`"
)]
pub trait Projection: Send + Sync + 'static {
    /// The events it understands: usually a plain serde enum with one variant per event type. The
    /// enum must not be tagged, because the type is the tag. Types without a variant are ignored. A
    /// type that is not an enum is decoded from every event's data.
    type Event: DeserializeOwned + Send + 'static;

    /// The document it produces.
    type Document: Serialize + DeserializeOwned + Send + 'static;

    /// Returns the name of the projection and of the collection it fills.
    fn name(&self) -> &str;

    /// Returns the version of its code. Increment it when `fold`, `route` or `upcast` produce
    /// another document from the same events.
    ///
    /// [`ProjectionStatus`](crate::inspect::ProjectionStatus) then says that the documents must be
    /// [rebuilt](crate::App::rebuild). Until then, readers see the old documents, and the new code
    /// continues with them.
    fn version(&self) -> u32 {
        1
    }

    /// Returns the text that identifies its code and is stored with the documents; by default the
    /// version.
    ///
    /// Override it for code that can change without a new version, such as a script loaded from a
    /// file.
    fn fingerprint(&self) -> Cow<'_, str> {
        self.version().to_string().into()
    }

    /// Returns whether it is about events of this type; other events are ignored, whatever their
    /// data. By default, [`Event`](Self::Event) alone decides: types without a variant are ignored.
    fn concerns(&self, kind: &EventKind) -> bool {
        let _ = kind;
        true
    }

    /// Returns the rule for which documents an event belongs to; by default the one named like its
    /// stream.
    fn route(&self) -> Route<Self::Event> {
        Route::Stream
    }

    /// Converts a stored event of an old shape to the current one, wherever events are read.
    fn upcast(&self, event: Event) -> Event {
        event
    }

    /// Returns the next document. `None` means that there is none: before the first event, or after
    /// a delete.
    fn fold(
        &self,
        document: Option<Self::Document>,
        event: &Event<Self::Event>,
    ) -> Result<Option<Self::Document>, Error>;

    /// Folds and routes many events in one call, for projections whose code runs elsewhere at a
    /// cost per call. `None`, the default, means that `fold` and `route` are called for each event.
    fn bulk(&self) -> Option<&dyn Bulk<Self::Event, Self::Document>> {
        None
    }
}

/// Folding and routing of many events at a time. The results must be the same as one by one.
pub trait Bulk<E, D> {
    /// Routes events; returns one result for each.
    fn route(&self, events: &[&Event<E>]) -> Vec<Result<DocumentIds, Invalid>>;

    /// Folds events into documents, in order, and returns the results in order. It folds the first
    /// `least` events, and as many more as fit into the time. After a failed fold, the later folds
    /// of the same document return `None`.
    fn fold(&self, folds: &[Upcoming<'_, E, D>], least: usize, time: Duration) -> Vec<Option<Folded<D>>>;
}

/// The result of a fold.
pub type Folded<D> = Result<Option<D>, Error>;

/// An upcoming fold.
#[derive(Debug)]
pub struct Upcoming<'a, E, D> {
    /// The document's id.
    pub id: &'a DocumentId,
    /// The document before its first fold in the same call. Later folds take the previous result.
    pub document: Option<&'a D>,
    /// The event.
    pub event: &'a Event<E>,
}

/// A shared projection is a projection.
impl<P: Projection> Projection for Arc<P> {
    type Event = P::Event;
    type Document = P::Document;

    fn name(&self) -> &str {
        (**self).name()
    }

    fn version(&self) -> u32 {
        (**self).version()
    }

    fn fingerprint(&self) -> Cow<'_, str> {
        (**self).fingerprint()
    }

    fn concerns(&self, kind: &EventKind) -> bool {
        (**self).concerns(kind)
    }

    fn route(&self) -> Route<P::Event> {
        (**self).route()
    }

    fn upcast(&self, event: Event) -> Event {
        (**self).upcast(event)
    }

    fn fold(
        &self,
        document: Option<P::Document>,
        event: &Event<P::Event>,
    ) -> Result<Option<P::Document>, Error> {
        (**self).fold(document, event)
    }

    fn bulk(&self) -> Option<&dyn Bulk<P::Event, P::Document>> {
        (**self).bulk()
    }
}
