//! The totals of a partition: its held events and conflicts, and the sequencer's counts.

use leftfold::Partition;
use leftfold::sequence::{SequencerCounts, Totals};
use rusqlite::{Connection, Row, params};

use crate::encoding::{json, number, signed, text};
use crate::error::Failure;

const TOTALS: &str = "SELECT events, bytes, conflicts, counts FROM leftfold_kept WHERE partition = ?1";

/// Returns the totals and counts of a partition.
pub(super) fn read(
    connection: &Connection,
    partition: Partition,
) -> Result<(Totals, SequencerCounts), Failure> {
    let mut statement = connection.prepare_cached(TOTALS)?;
    let mut rows = statement.query([partition.0])?;
    rows.next()?.map_or_else(|| Ok(Default::default()), |row| Ok((decode(row, 0)?, json(row, 3)?)))
}

/// Writes the totals and counts of a partition.
pub(super) fn put(
    connection: &Connection,
    partition: Partition,
    totals: Totals,
    counts: SequencerCounts,
) -> Result<(), Failure> {
    let Totals { events, bytes, conflicts } = totals;
    let values = params![partition.0, signed(events), signed(bytes), signed(conflicts), text(&counts)?];
    connection
        .prepare_cached("INSERT OR REPLACE INTO leftfold_kept VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(values)?;
    Ok(())
}

/// Decodes the totals that start at this column.
pub(super) fn decode(row: &Row<'_>, column: usize) -> Result<Totals, Failure> {
    let (events, bytes, conflicts) =
        (number(row, column)?, number(row, column + 1)?, number(row, column + 2)?);
    Ok(Totals { events, bytes, conflicts })
}
