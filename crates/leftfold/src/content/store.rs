//! The store interface of documents that are written without events.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Version;
use super::operation::{Operation, OperationIds, Recalled};
use crate::error::{Invalid, Result};
use crate::event::DocumentId;
use crate::json::Json;
use crate::mutant;
use crate::react::ExternalCollection;

/// The guard of a write: bytes that differ after each change of the document.
///
/// After a write of content it is the content's version. After an operation it is a unique number,
/// because the store may apply operations without knowing the whole document.
#[derive(Clone, PartialEq, Eq)]
pub struct ContentGuard(SmallVec<[u8; 32]>);

impl ContentGuard {
    /// Creates the guard of an operation from a unique number.
    pub fn of_operation(number: u64) -> Self {
        Self(SmallVec::from_slice(&number.to_be_bytes()))
    }

    /// Restores the guard that a store kept.
    pub fn stored(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<Version> for ContentGuard {
    fn from(version: Version) -> Self {
        Self(SmallVec::from_slice(version.as_bytes()))
    }
}

impl fmt::Display for ContentGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A document as a store keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Its id.
    pub id: DocumentId,
    /// Its body.
    pub body: Json,
    /// The guard of its next write.
    pub guard: ContentGuard,
    /// The operations that it remembers.
    pub operations: OperationIds,
}

impl Stored {
    /// Returns the document with an operation applied, or the reason why it is unchanged. `number`
    /// must be unique.
    pub fn operated(mut self, operation: &Operation, number: u64) -> Result<Self, Operated> {
        match self.operations.recall(operation.id()) {
            Recalled::Applied => return Err(Operated::AlreadyApplied),
            Recalled::TooOld => return Err(Operated::TooOld),
            Recalled::New => {}
        }
        self.body = operation.apply(&self.body).map_err(Operated::Impossible)?;
        self.guard = ContentGuard::of_operation(number);
        mutant!(OperationUnremembered => return Ok(self));
        self.operations.remember(operation.id());
        Ok(self)
    }
}

/// A guarded write of one document.
#[derive(Clone, Debug, PartialEq)]
pub struct ContentWrite {
    /// The document's id.
    pub id: DocumentId,
    /// The guard that the document must have; `None` if it must not exist.
    pub expected: Option<ContentGuard>,
    /// The new guard and body; `None` to delete the document. The operations that it remembers are
    /// kept.
    pub to: Option<(ContentGuard, Json)>,
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq)]
pub enum Wrote {
    /// This call wrote the document.
    Written,
    /// The document does not have the expected guard. This is the current one; nothing was written.
    Refused(Option<Stored>),
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operated {
    /// This call applied the operation.
    Applied,
    /// The operation was applied before.
    AlreadyApplied,
    /// The outcome is unknown, because the document no longer remembers operations as old as this.
    TooOld,
    /// The document does not exist.
    Missing,
    /// The document's state does not allow it. Nothing was changed.
    Impossible(Invalid),
}

/// A store of documents that are written without events. Others may read these collections or
/// tables, and [react](crate::react::Reaction::on_plain) to them.
pub trait Contents: Clone + Send + Sync + 'static {
    /// The number of documents per call in a large write. Several calls run at the same time.
    const PIECE: usize = 250;

    /// Creates the structures that such documents need. Leaves existing ones unchanged.
    fn prepare_contents(&self, collection: &ExternalCollection) -> impl Future<Output = Result<()>> + Send;

    /// Returns the current documents; missing ones are left out.
    fn contents(
        &self,
        collection: &ExternalCollection,
        ids: Vec<DocumentId>,
    ) -> impl Future<Output = Result<Vec<Stored>>> + Send;

    /// Applies each write whose guard holds, independently, at most one per document. Returns the
    /// results in order. After an error the outcome is unknown: repeat the writes.
    fn write_contents(
        &self,
        collection: &ExternalCollection,
        writes: Arc<[ContentWrite]>,
    ) -> impl Future<Output = Result<Vec<Wrote>>> + Send;

    /// Applies operations, each independently. Returns the results in order. After an error the
    /// outcome is unknown: repeat the operations.
    fn operate(
        &self,
        collection: &ExternalCollection,
        operations: Arc<[(DocumentId, Operation)]>,
    ) -> impl Future<Output = Result<Vec<Operated>>> + Send;
}
