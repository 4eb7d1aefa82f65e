//! The documents that an event belongs to.

use std::collections::HashSet;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use crate::error::Invalid;
use crate::event::{DocumentId, Event};

type RouteFn<E> = Box<dyn Fn(&Event<E>) -> Result<DocumentIds, Invalid> + Send + Sync>;

/// The rule for which documents an event belongs to.
pub enum Route<E> {
    /// The document named like the event's stream. An event that can't be decoded parks only that
    /// document.
    Stream,
    /// The documents that a function names. An event that can't be decoded can't be routed either,
    /// so it parks its stream for this projection.
    By(RouteFn<E>),
}

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
