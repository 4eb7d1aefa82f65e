//! The ids of operations, and those that a document remembers.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::Invalid;
use crate::event::Revision;
use crate::mutant;

/// The number of operations that a document remembers: those with the highest ids.
pub const REMEMBERED: usize = 32;

/// The identity of an operation.
///
/// Ids grow, as those of a [`Clock`](crate::revision::Clock) do. A document remembers the highest
/// [32](REMEMBERED); whether a lower one was applied is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperationId(u64);

impl OperationId {
    /// Checks the number: from 1 to 2⁶³ - 1.
    pub fn new(number: u64) -> Result<Self, Invalid> {
        if number == 0 || i64::try_from(number).is_err() {
            return Err(Invalid::new("operation id", &number.to_string(), "a number from 1 to 2⁶³ - 1"));
        }
        Ok(Self(number))
    }

    /// Returns the number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl TryFrom<Revision> for OperationId {
    type Error = Invalid;

    fn try_from(revision: Revision) -> Result<Self, Invalid> {
        Self::new(revision.0)
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The operations that a document remembers, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperationIds(Vec<OperationId>);

/// The result of looking up an operation among the remembered ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recalled {
    /// The operation was not applied.
    New,
    /// The operation was applied.
    Applied,
    /// The operation is so old that the document no longer remembers whether it was applied.
    TooOld,
}

impl OperationIds {
    /// Restores the ids that a store kept, in any order.
    pub fn stored(ids: impl IntoIterator<Item = u64>) -> Self {
        let mut ids: Vec<_> = ids.into_iter().map(OperationId).collect();
        ids.sort_unstable();
        Self(ids)
    }

    /// Returns the ids, the lowest first.
    pub fn iter(&self) -> impl Iterator<Item = OperationId> {
        self.0.iter().copied()
    }

    /// Looks up an operation.
    pub fn recall(&self, id: OperationId) -> Recalled {
        if self.0.binary_search(&id).is_ok() {
            return Recalled::Applied;
        }
        // All forgotten ids are lower than the remembered ones.
        let is_too_old = self.0.len() >= REMEMBERED && self.0.first().is_some_and(|lowest| id < *lowest);
        mutant!(OldIsNew => return Recalled::New);
        if is_too_old { Recalled::TooOld } else { Recalled::New }
    }

    /// Remembers an operation, and forgets the lowest ones beyond the limit.
    pub fn remember(&mut self, id: OperationId) {
        if let Err(at) = self.0.binary_search(&id) {
            self.0.insert(at, id);
        }
        mutant!(HighestForgotten => self.0.truncate(REMEMBERED));
        let surplus = self.0.len().saturating_sub(REMEMBERED);
        self.0.drain(..surplus);
    }
}
