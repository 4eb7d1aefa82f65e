//! Leases: the worker that holds a projection, by the store's time. They avoid duplicate work;
//! correctness does not depend on them.

use std::time::Duration;

use leftfold::documents::{Claim, Tally};
use leftfold::{Collection, Error, Mark, Result};
use rusqlite::params;

use crate::clock;
use crate::connection::{Ran, Tx, Work};
use crate::documents::generations::stored;
use crate::encoding::text;
use crate::error::Failure;

pub(super) struct ClaimWork {
    pub(super) projection: Collection,
    pub(super) owner: String,
    pub(super) lease: Duration,
}

impl Work for ClaimWork {
    type Answer = Result<Claim>;

    const DOING: &'static str = "claim a projection in";

    fn has_steps(&self) -> bool {
        true
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let Self { projection, owner, lease } = self;
        point!("claim");
        let projection = stored(tx.connection, projection)?;
        let now = seconds(clock::keep(tx.connection)?);
        let mut take = tx.connection.prepare_cached(
            "INSERT INTO leftfold_checkpoints (projection, mark, tally, owner, lease_until) \
             VALUES (?1, ?2, ?3, ?4, ?6 + ?5) \
             ON CONFLICT (projection) DO UPDATE SET owner = excluded.owner, lease_until = excluded.lease_until \
             WHERE owner IS NULL OR owner = excluded.owner OR lease_until <= ?6",
        )?;
        let (mark, tally) = (text(&Mark::default())?, text(&Tally::default())?);
        let taken =
            take.execute(params![projection.as_str(), mark, tally, owner, lease.as_secs_f64(), now])?;
        if taken == 1 {
            point!("claimed");
            return Ok(Ran::Keep(Ok(Claim::Ours)));
        }
        let mut left = tx.connection.prepare_cached(
            "SELECT max(lease_until - ?2, 0.001) FROM leftfold_checkpoints WHERE projection = ?1",
        )?;
        let left = left.query_row(params![projection.as_str(), now], |row| row.get(0))?;
        let ends_in = Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX);
        Ok(Ran::Keep(Ok(Claim::Theirs { ends_in })))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a lease need not end at an exact microsecond")]
fn seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}

pub(super) struct ReleaseWork {
    pub(super) projection: Collection,
    pub(super) owner: String,
}

impl Work for ReleaseWork {
    type Answer = Result<()>;

    const DOING: &'static str = "release a projection in";

    fn has_steps(&self) -> bool {
        false
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let mut give = tx.connection.prepare_cached(
            "UPDATE leftfold_checkpoints SET owner = NULL, lease_until = NULL \
             WHERE projection = ?1 AND owner = ?2",
        )?;
        let projection = stored(tx.connection, &self.projection)?;
        give.execute([projection.as_str(), &self.owner])?;
        Ok(Ran::Keep(Ok(())))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}
