//! The trait that users implement to turn events into documents.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use serde::Serialize;
use serde::de::DeserializeOwned;
use smallvec::SmallVec;

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
    /// [`ProjectionStatus`](super::ProjectionStatus) then says that the documents must be
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

/// The rule for which documents an event belongs to.
pub enum Route<E> {
    /// The document named like the event's stream. An event that can't be decoded parks only that
    /// document.
    Stream,
    /// The documents that a function names. An event that can't be decoded can't be routed either,
    /// so it parks its stream for this projection.
    By(RouteFn<E>),
}

type RouteFn<E> = Box<dyn Fn(&Event<E>) -> Result<DocumentIds, Invalid> + Send + Sync>;

impl<E> Route<E> {
    /// Routes by the event's content.
    ///
    /// ```
    /// # use leftfold::{Event, fold::{DocumentIds, Route}};
    /// struct Confirmed { client: String }
    /// let by_client = Route::by(|event: &Event<Confirmed>| DocumentIds::one(&event.data.client));
    /// ```
    pub fn by(route: impl Fn(&Event<E>) -> Result<DocumentIds, Invalid> + Send + Sync + 'static) -> Self {
        Self::By(Box::new(route))
    }
}

/// The ids of the documents an event belongs to: none, one or several, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocumentIds(SmallVec<[DocumentId; 1]>);

impl DocumentIds {
    /// Returns no ids: the event concerns no document.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns the id of the one document that the event concerns.
    pub fn one(id: impl AsRef<str>) -> Result<Self, Invalid> {
        Self::many([id])
    }

    /// Returns the ids of the documents that the event concerns.
    pub fn many(ids: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, Invalid> {
        // Comparing a few ids with each other is faster than hashing them.
        const FEW: usize = 16;
        let mut unique = SmallVec::<[DocumentId; 1]>::new();
        let mut seen = HashSet::with_hasher(RandomState::default());
        for id in ids {
            let id = DocumentId::new(id)?;
            if unique.len() < FEW {
                if !unique.contains(&id) {
                    unique.push(id);
                }
                continue;
            }
            if seen.is_empty() {
                seen.extend(unique.iter().cloned());
            }
            if seen.insert(id.clone()) {
                unique.push(id);
            }
        }
        Ok(Self(unique))
    }

    pub(crate) fn stream<D>(event: &Event<D>) -> Self {
        Self(SmallVec::from_iter([DocumentId::from(&event.stream)]))
    }

    pub(crate) fn as_slice(&self) -> &[DocumentId] {
        &self.0
    }
}

/// The reason why an event could not be folded. It parks the document, after the retries that the
/// policy allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    message: String,
    transient: bool,
}

impl Error {
    /// Creates an error that retrying does not fix.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: shortened(message.into()), transient: false }
    }

    /// Creates an error that a retry may fix.
    pub fn transient(message: impl Into<String>) -> Self {
        Self { message: shortened(message.into()), transient: true }
    }

    /// Runs code of a projection. A panic counts as a failure.
    pub(crate) fn catch<T>(what: &str, run: impl FnOnce() -> Result<T, Self>) -> Result<T, Self> {
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            let said = panic.downcast_ref::<&str>().map(ToString::to_string);
            let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
            Err(Self::new(format!("{what} panicked: {}", said.as_deref().unwrap_or("no message"))))
        })
    }

    /// Returns whether a retry may help.
    pub fn is_transient(&self) -> bool {
        self.transient
    }
}

/// Shortens a message. Errors are stored with their documents, and some quote a value of any
/// length.
fn shortened(mut message: String) -> String {
    const MOST: usize = 2_000;
    if message.len() > MOST {
        message.truncate(message.floor_char_boundary(MOST));
        message.push('…');
    }
    message
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<&str> for Error {
    fn from(message: &str) -> Self {
        Self::new(message)
    }
}

impl From<String> for Error {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        Self::new(invalid.to_string())
    }
}
