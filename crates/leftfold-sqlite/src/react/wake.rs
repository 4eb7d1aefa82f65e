//! Wake-ups for runners: a counter in the file, and the [board](crate::watch) that publishes it.

use std::time::Duration;

use leftfold::{Error, Result};
use rusqlite::{Connection, OptionalExtension as _};
use tokio::time::{Instant, timeout_at};

use crate::Sqlite;
use crate::connection::{Ran, Tx, Work};
use crate::error::Failure;

/// Wakes the runners of all processes.
pub(super) struct WakeWork;

impl Work for WakeWork {
    type Answer = Result<()>;

    const DOING: &'static str = "wake the runners of";

    fn has_steps(&self) -> bool {
        false
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        // The first versions called wake-ups stirs. The name of the row is part of the format.
        let sql = "INSERT INTO leftfold_meta VALUES ('stirs', '1') \
            ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + 1";
        tx.connection.prepare_cached(sql)?.execute([])?;
        tx.wakes = Some(wakes(tx.connection)?);
        Ok(Ran::Keep(Ok(())))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

/// Returns the number of wake-ups of runners.
pub(crate) fn wakes(file: &Connection) -> Result<u64, Failure> {
    let sql = "SELECT CAST(value AS INTEGER) FROM leftfold_meta WHERE key = 'stirs'";
    let wakes = file.prepare_cached(sql)?.query_row([], |row| row.get::<_, i64>(0)).optional()?;
    Ok(wakes.map_or(0, i64::cast_unsigned))
}

impl Sqlite {
    /// Waits until the counter differs from `since`, or until the timeout. Returns the counter.
    pub(super) async fn wait_for_wake(&self, since: u64, patience: Duration) -> Result<u64> {
        let end = Instant::now().checked_add(patience);
        let (_waiting, mut known) = self.inner.board.wait()?;
        loop {
            let seen = known.borrow_and_update().wakes;
            let wakes = self.inner.readers.read("wait for tasks in", wakes).await?;
            // The wait can't fail: this handle keeps the board alive.
            let news = known.wait_for(|known| known.wakes != seen);
            if wakes != since || is_over(end, news).await {
                return Ok(wakes);
            }
        }
    }
}

/// Waits until `end`, or forever if there is none. Returns whether the time is up.
pub(super) async fn is_over(end: Option<Instant>, wait: impl Future) -> bool {
    let Some(end) = end else {
        wait.await;
        return false;
    };
    timeout_at(end, wait).await.is_err()
}
