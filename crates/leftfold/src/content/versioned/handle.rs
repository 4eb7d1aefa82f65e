//! The handle: opening a collection, and reading documents.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::backoff::Backoff;
use crate::content::store::{Contents, Stored};
use crate::content::{Counted, Version};
use crate::env::{Env, System};
use crate::error::Result;
use crate::event::DocumentId;
use crate::react::ExternalCollection;

/// Documents of one type that are written without events, each guarded by its content.
///
/// A write names the version that it is based on, and the new content. Repeated, it finds its own
/// content and does nothing. So a caller that did not get an answer can write again; `Versioned`
/// does that automatically if the store is unavailable.
///
/// ```
/// use leftfold::content::{WriteAnswer, Versioned};
/// use leftfold::Memory;
/// # use serde::{Deserialize, Serialize};
///
/// #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
/// struct Product { name: String, price: u64 }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leftfold::Result<()> {
/// let products = Versioned::<Product, _>::new(Memory::default(), "products").await?;
/// let shoes = Product { name: "shoes".into(), price: 4900 };
/// let WriteAnswer::Applied(first) = products.insert("shoes", &shoes).await? else { panic!() };
/// assert_eq!(products.insert("shoes", &shoes).await?, WriteAnswer::AlreadyApplied(first));
///
/// let cheaper = Product { price: 3900, ..shoes.clone() };
/// let WriteAnswer::Applied(second) = products.update("shoes", first, &cheaper).await? else { panic!() };
/// assert_eq!(products.update("shoes", first, &cheaper).await?, WriteAnswer::AlreadyApplied(second));
/// let dearer = Product { price: 5900, ..shoes };
/// let WriteAnswer::Conflict(Some(current)) = products.update("shoes", first, &dearer).await? else { panic!() };
/// assert_eq!((current.version, current.document), (second, cheaper));
/// # Ok(()) }
/// ```
///
/// # Limits
///
/// Content that returns has its old version again. A write from A to B does not notice that the
/// document was A, then C, then A again in the meantime. If that matters, add a counter to the
/// document.
///
/// All writers must write in this way: other programs may read the collection, but not write to it.
pub struct Versioned<D, S> {
    pub(super) store: S,
    pub(super) env: Arc<dyn Env>,
    pub(super) collection: ExternalCollection,
    pub(super) counted: Counted,
    pub(super) retry: Backoff,
    document: PhantomData<fn() -> D>,
}

impl<D, S: Clone> Clone for Versioned<D, S> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            env: self.env.clone(),
            collection: self.collection.clone(),
            counted: self.counted.clone(),
            retry: self.retry,
            document: PhantomData,
        }
    }
}

/// A document, and the version of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Current<D> {
    /// The version that a change must be based on.
    pub version: Version,
    /// The document.
    pub document: D,
}

impl<D, S: fmt::Debug> fmt::Debug for Versioned<D, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, collection, counted, retry, .. } = self;
        f.debug_struct("Versioned")
            .field("store", store)
            .field("collection", collection)
            .field("counted", counted)
            .field("retry", retry)
            .finish_non_exhaustive()
    }
}

impl<D: Serialize + DeserializeOwned + Send + 'static, S: Contents> Versioned<D, S> {
    /// Opens this collection or table, and creates it if it does not exist.
    pub async fn new(store: S, collection: impl Into<String>) -> Result<Self> {
        let collection = ExternalCollection::new(collection)?;
        store.prepare_contents(&collection).await?;
        let retry = Backoff::default().limit(10);
        let (env, counted) = (Arc::new(System), Counted::All);
        Ok(Self { store, env, collection, counted, retry, document: PhantomData })
    }

    /// Sets the part of a document that counts for versions; the default is all. The rest is
    /// written nevertheless.
    #[must_use]
    pub fn counting(self, counted: Counted) -> Self {
        Self { counted, ..self }
    }

    /// Sets the retry policy, for an unavailable store and for conflicts of
    /// [`change`](Self::change).
    #[must_use]
    pub fn retry(self, retry: Backoff) -> Self {
        Self { retry, ..self }
    }

    /// Sets the source of randomness, for simulations.
    #[must_use]
    pub fn env(self, env: impl Env) -> Self {
        Self { env: Arc::new(env), ..self }
    }

    /// Returns a document, if it exists.
    pub async fn get(&self, id: &str) -> Result<Option<Current<D>>> {
        let id = DocumentId::new(id)?;
        let request = || self.store.contents(&self.collection, vec![id.clone()]);
        let stored = self.with_retry(request).await?.0.pop();
        stored.map(|stored| self.current(&stored)).transpose()
    }

    pub(super) fn name(&self) -> &str {
        self.collection.as_str()
    }

    pub(super) fn current(&self, stored: &Stored) -> Result<Current<D>> {
        let version = Version::of(&stored.body, &self.counted)?;
        Ok(Current { version, document: stored.body.to()? })
    }
}
