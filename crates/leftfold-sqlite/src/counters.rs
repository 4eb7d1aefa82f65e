//! Counters: one row each, and one row for each client that recently drew from it.

use leftfold::revision::{Counters, Draw, REMEMBERED_CLIENTS};
use leftfold::{Error, Result};
use rusqlite::{OptionalExtension as _, params};

use crate::Sqlite;
use crate::connection::{Ran, Tx, Work};
use crate::error::Failure;

impl Counters for Sqlite {
    async fn draw(&self, draw: Draw) -> Result<u64> {
        self.inner.writer.run(DrawWork(draw)).await
    }
}

struct DrawWork(Draw);

impl Work for DrawWork {
    type Answer = Result<u64>;

    const DOING: &'static str = "draw numbers in";

    fn has_steps(&self) -> bool {
        true
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let Draw { counter, count, client, request } = &self.0;
        let number =
            |number: &u64| i64::try_from(*number).map_err(|error| Failure::damaged(error.to_string()));
        let (count, request) = (number(count)?, number(request)?);
        let known = "SELECT request, first FROM leftfold_draws WHERE counter = ?1 AND client = ?2";
        let known = tx
            .connection
            .prepare_cached(known)?
            .query_row([counter, client], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))
            .optional()?;
        if let Some((_, first)) = known.filter(|(known, _)| *known == request) {
            return Ok(Ran::Keep(Ok(first.unsigned_abs())));
        }
        let last: i64 = tx
            .connection
            .prepare_cached(
                "INSERT INTO leftfold_counters VALUES (?1, ?2) \
                 ON CONFLICT (counter) DO UPDATE SET last = last + ?2 RETURNING last",
            )?
            .query_row(params![counter, count], |row| row.get(0))?;
        let first = last - count + 1;
        tx.connection
            .prepare_cached("INSERT OR REPLACE INTO leftfold_draws VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![counter, client, request, first])?;
        if known.is_none() {
            let most = i64::try_from(REMEMBERED_CLIENTS).unwrap_or(i64::MAX);
            tx.connection
                .prepare_cached(
                    "DELETE FROM leftfold_draws WHERE counter = ?1 AND client IN (SELECT client FROM leftfold_draws \
                     WHERE counter = ?1 ORDER BY first DESC LIMIT -1 OFFSET ?2)",
                )?
                .execute(params![counter, most])?;
        }
        Ok(Ran::Keep(Ok(first.unsigned_abs())))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}
