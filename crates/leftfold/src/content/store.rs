//! What a store does for documents that are written without events.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Version;
use super::operation::{Ids, Operation, Recalled};
use crate::error::{Invalid, Result};
use crate::event::DocumentId;
use crate::json::Json;
use crate::planted::{Bug, planted};
use crate::react::Plain;

/// What a write is guarded by: other bytes after each change of the document. After a write of content it is the content's version; after an
/// operation, which the store may carry out without knowing all of the document, it is a number that comes once.
#[derive(Clone, PartialEq, Eq)]
pub struct Guard(SmallVec<[u8; 32]>);

impl Guard {
    /// That of an operation, from a number that comes once.
    pub fn once(number: u64) -> Self {
        Self(SmallVec::from_slice(&number.to_be_bytes()))
    }

    /// Takes back what a store kept.
    pub fn stored(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<Version> for Guard {
    fn from(version: Version) -> Self {
        Self(SmallVec::from_slice(&version.0))
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A document as a store keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Its id.
    pub id: DocumentId,
    /// What it is.
    pub body: Json,
    /// What writes of it are guarded by.
    pub guard: Guard,
    /// The operations that it remembers.
    pub operations: Ids,
}

impl Stored {
    /// The document as it is after an operation, or why it stays as it is. The number is one that comes once.
    pub fn operated(mut self, operation: &Operation, number: u64) -> Result<Self, Operated> {
        match self.operations.recall(operation.id()) {
            Recalled::Applied => return Err(Operated::AlreadyApplied),
            Recalled::TooOld => return Err(Operated::TooOld),
            Recalled::New => {}
        }
        self.body = operation.apply(&self.body).map_err(Operated::Impossible)?;
        self.guard = Guard::once(number);
        if !planted(Bug::OperationUnremembered) {
            self.operations.remember(operation.id());
        }
        Ok(self)
    }
}

/// A guarded write of one document.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// The document's id.
    pub id: DocumentId,
    /// The guard that it must have; `None` if it must not be there.
    pub expected: Option<Guard>,
    /// What it is to be, and its guard then; `None` if it is to be gone. The operations that it remembers stay as they are.
    pub to: Option<(Guard, Json)>,
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq)]
pub enum Wrote {
    /// It was written by this call.
    Written,
    /// The document was not what was expected, but this; nothing was written.
    Refused(Option<Stored>),
}

/// What became of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operated {
    /// It was applied by this call.
    Applied,
    /// It was applied before.
    AlreadyApplied,
    /// Whether it was applied can't be told any more: the document has forgotten operations as old as this.
    TooOld,
    /// There is no such document.
    Missing,
    /// The document does not allow it. Nothing was changed.
    Impossible(Invalid),
}

/// Documents that are written without events, in collections or tables that others may read, and
/// [react](crate::react::Reaction::on_plain) to.
pub trait Contents: Clone + Send + Sync + 'static {
    /// How many documents to write in one call, where there are many. Several calls are made at the same time.
    const PIECE: usize = 250;

    /// Makes what is needed to keep such documents. What is there already stays as it is.
    fn prepare_contents(&self, collection: &Plain) -> impl Future<Output = Result<()>> + Send;

    /// Documents as they are now; those that are not there are left out.
    fn contents(
        &self,
        collection: &Plain,
        ids: Vec<DocumentId>,
    ) -> impl Future<Output = Result<Vec<Stored>>> + Send;

    /// Makes those of these writes whose guards hold, each by itself, at most one per document. Answers in their order. On an error nobody knows:
    /// write again.
    fn write_contents(
        &self,
        collection: &Plain,
        writes: Arc<[Write]>,
    ) -> impl Future<Output = Result<Vec<Wrote>>> + Send;

    /// Applies operations, each by itself. Answers in their order. On an error nobody knows: operate again.
    fn operate(
        &self,
        collection: &Plain,
        operations: Arc<[(DocumentId, Operation)]>,
    ) -> impl Future<Output = Result<Vec<Operated>>> + Send;
}
