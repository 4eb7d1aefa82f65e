//! The work of one caller, in a transaction that other work may share.

use leftfold::{Collection, Error, Mark, Partition};
use rusqlite::{CachedStatement, Connection};

use crate::contents::Operating;
use crate::error::Failure;
use crate::{append, log};

/// Work in a transaction that other work may share.
pub(crate) trait Work: Send + 'static {
    type Answer: Send + 'static;

    /// The operation on the file, for errors: "append to".
    const DOING: &'static str;

    /// Returns the approximate number of bytes it writes.
    fn bytes(&self) -> usize {
        0
    }

    /// Returns whether it writes with more than one statement, so that undoing it needs a
    /// savepoint.
    fn has_steps(&self) -> bool;

    /// Does the work. It sets the results for others in `tx` only when nothing can fail any more.
    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure>;

    /// Returns the answer if nothing was written, or if the outcome is unknown.
    fn failed(error: Error) -> Self::Answer;
}

/// The result of work.
pub(crate) enum Ran<A> {
    /// Commit its writes, if any.
    Keep(A),
    /// Undo its writes.
    Undo(A),
}

/// The transaction that a group shares.
pub(crate) struct Tx<'c> {
    pub(crate) connection: &'c Connection,
    /// The last row of each partition that was looked up or written.
    pub(super) heads: Vec<Option<i64>>,
    /// The moved checkpoints.
    pub(crate) marks: Vec<(Collection, Mark)>,
    /// `true` if documents were written, so that followers may need a wake-up.
    pub(crate) wrote_documents: bool,
    /// The state for carrying out operations.
    pub(crate) operating: &'c Operating,
    /// SQLite's schema version, if waiting tasks need to know a new one.
    pub(crate) schema: Option<i64>,
    /// The number of wake-ups of runners, if it changed.
    pub(crate) wakes: Option<u64>,
    /// The statements shared by all appends of a group.
    pub(super) append: Option<Append<'c>>,
    /// The last failure that other work may meet, too.
    pub(super) trouble: Option<Failure>,
}

/// The statements of an append.
pub(crate) struct Append<'c> {
    pub(crate) revision: CachedStatement<'c>,
    pub(crate) insert: CachedStatement<'c>,
}

impl<'c> Tx<'c> {
    /// Returns the last row of a partition.
    pub(crate) fn head(&self, partition: Partition) -> Result<i64, Failure> {
        match self.heads.get(usize::from(partition.0)).copied().flatten() {
            Some(row) => Ok(row),
            None => log::head(self.connection, partition),
        }
    }

    /// Sets the last row of a partition.
    pub(crate) fn grow(&mut self, partition: Partition, row: i64) {
        if let Some(head) = self.heads.get_mut(usize::from(partition.0)) {
            *head = Some(row);
        }
    }

    /// Returns the statements of an append, prepared once per group.
    pub(crate) fn append(&mut self) -> rusqlite::Result<&mut Append<'c>> {
        Ok(match &mut self.append {
            Some(prepared) => prepared,
            none => none.insert(Append {
                revision: self.connection.prepare_cached(log::REVISION)?,
                insert: self.connection.prepare_cached(append::INSERT)?,
            }),
        })
    }
}
