//! Leases of feeds, and the heartbeats of workers. Both use the store's time, inside the writer's
//! transaction.

use std::collections::BTreeSet;
use std::time::Duration;

use leftfold::{Error, Result};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::clock;
use crate::connection::{Ran, Tx, Work};
use crate::error::Failure;

pub(super) struct TakeWork {
    pub(super) name: String,
    pub(super) owner: String,
    pub(super) length: Duration,
}

impl Work for TakeWork {
    type Answer = Result<Option<u64>>;

    const DOING: &'static str = "take a lease in";

    fn has_steps(&self) -> bool {
        true
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let Self { name, owner, length } = self;
        let now = clock::keep(tx.connection)?;
        let until = now.saturating_add(i64::try_from(length.as_micros()).unwrap_or(i64::MAX));
        let mut take = tx.connection.prepare_cached(
            "INSERT INTO leftfold_leases VALUES (?1, ?2, ?3, 1) ON CONFLICT (name) DO UPDATE \
             SET number = number + (owner IS NOT excluded.owner), owner = excluded.owner, until = excluded.until \
             WHERE owner IS NULL OR owner = excluded.owner OR until <= ?4 RETURNING number",
        )?;
        let number = take.query_row(params![name, owner, until, now], |row| row.get(0)).optional()?;
        point!("lease-taken");
        Ok(Ran::Keep(Ok(number.map(i64::cast_unsigned))))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

pub(super) struct GiveWork {
    pub(super) name: String,
    pub(super) owner: String,
}

impl Work for GiveWork {
    type Answer = Result<()>;

    const DOING: &'static str = "release a lease in";

    fn has_steps(&self) -> bool {
        false
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let sql = "UPDATE leftfold_leases SET owner = NULL WHERE name = ?1 AND owner = ?2";
        tx.connection.prepare_cached(sql)?.execute([&self.name, &self.owner])?;
        Ok(Ran::Keep(Ok(())))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

/// Records a heartbeat of a worker, and deletes the heartbeats of workers that are long dead.
pub(super) struct BeatWork {
    pub(super) worker: String,
    pub(super) length: Duration,
}

impl Work for BeatWork {
    type Answer = Result<()>;

    const DOING: &'static str = "store the heartbeat of a worker in";

    fn has_steps(&self) -> bool {
        true
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        const DAY: i64 = 24 * 3_600 * 1_000_000;
        let now = clock::keep(tx.connection)?;
        let until = now.saturating_add(i64::try_from(self.length.as_micros()).unwrap_or(i64::MAX));
        let delete = "DELETE FROM leftfold_workers WHERE until < ?1";
        tx.connection.prepare_cached(delete)?.execute([now.saturating_sub(DAY)])?;
        let beat = "INSERT INTO leftfold_workers VALUES (?1, ?2) \
                    ON CONFLICT (name) DO UPDATE SET until = excluded.until";
        tx.connection.prepare_cached(beat)?.execute(params![self.worker, until])?;
        Ok(Ran::Keep(Ok(())))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

/// Returns the living workers.
pub(super) fn living(file: &Connection) -> Result<BTreeSet<String>, Failure> {
    let now = clock::now(file)?;
    let mut statement = file.prepare_cached("SELECT name FROM leftfold_workers WHERE until > ?1")?;
    let living = statement.query_map([now], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(living)
}
