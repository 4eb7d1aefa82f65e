//! The stored place of a feed, under the number of its lease.

use leftfold::{Error, Result};
use rusqlite::{Connection, OptionalExtension as _};

use super::journal::trim;
use crate::connection::{Ran, Tx, Work};
use crate::error::Failure;

/// The number of journal entries deleted at once.
const TRIM: usize = 10_000;

/// Returns the stored place of a feed.
pub(in crate::react) fn read(file: &Connection, name: &str) -> Result<Option<String>, Failure> {
    let sql = "SELECT place FROM leftfold_places WHERE feed = ?1";
    Ok(file.prepare_cached(sql)?.query_row([name], |row| row.get(0)).optional()?)
}

/// Stores the place of a feed.
pub(in crate::react) struct PlaceWork {
    pub(in crate::react) name: String,
    pub(in crate::react) lease: u64,
    pub(in crate::react) place: Option<String>,
}

impl Work for PlaceWork {
    type Answer = Result<bool>;

    const DOING: &'static str = "store the place of a feed in";

    fn has_steps(&self) -> bool {
        true
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let Self { name, lease, place } = self;
        let sql = "SELECT number FROM leftfold_leases WHERE name = ?1";
        let number: Option<i64> =
            tx.connection.prepare_cached(sql)?.query_row([name], |row| row.get(0)).optional()?;
        if number.map(i64::cast_unsigned) != Some(*lease) {
            return Ok(Ran::Keep(Ok(false)));
        }
        let mut put = tx.connection.prepare_cached(
            "INSERT INTO leftfold_places VALUES (?1, ?2) ON CONFLICT (feed) DO UPDATE SET place = excluded.place",
        )?;
        let mut delete = tx.connection.prepare_cached("DELETE FROM leftfold_places WHERE feed = ?1")?;
        match place {
            Some(place) => put.execute([name, place])?,
            None => delete.execute([name])?,
        };
        point!("place-put");
        trim(tx.connection, TRIM)?;
        Ok(Ran::Keep(Ok(true)))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}
