//! The last row of each partition, and the last revision of each stream.

use leftfold::{Mark, Partition, Revision, StreamId};
use rusqlite::{Connection, OptionalExtension as _, Statement};

use super::record::{LAST_POSITION, position_of, row_of};
use crate::error::Failure;

pub(crate) const REVISION: &str =
    "SELECT revision FROM leftfold_events WHERE stream = ?1 ORDER BY revision DESC LIMIT 1";

/// Returns the last position of each partition.
pub(crate) fn heads(connection: &Connection, partitions: usize) -> Result<Vec<u64>, Failure> {
    (0..).take(partitions).map(|number| head(connection, Partition(number)).map(position_of)).collect()
}

/// Returns whether some partition's head is beyond the mark.
pub(crate) fn are_beyond(heads: &[u64], mark: &Mark) -> bool {
    (0..).zip(heads).any(|(partition, head)| *head > mark.position(Partition(partition)).0)
}

/// Returns the last row of a partition.
pub(crate) fn head(connection: &Connection, partition: Partition) -> Result<i64, Failure> {
    let mut statement = connection.prepare_cached(
        "SELECT position FROM leftfold_events WHERE position > ?1 AND position <= ?2 \
         ORDER BY position DESC LIMIT 1",
    )?;
    let none = row_of(partition, 0);
    let row = statement.query_row([none, row_of(partition, LAST_POSITION)], |row| row.get(0)).optional()?;
    Ok(row.unwrap_or(none))
}

/// Returns the last revision of a stream, with the statement [`REVISION`].
pub(crate) fn revision(statement: &mut Statement<'_>, stream: &StreamId) -> Result<Revision, Failure> {
    let revision = statement.query_row([stream.as_str()], |row| row.get::<_, i64>(0)).optional()?;
    Ok(Revision(revision.unwrap_or(0).unsigned_abs()))
}
