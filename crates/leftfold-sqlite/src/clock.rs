//! The store's time: [`Steady`], read from the machine's clocks and stored in the file.
//!
//! Leases and due times are compared with it. Each lease stores it in the same transaction, and no
//! process reads an earlier time than the stored one.

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use leftfold::store::clock::{ClockStep, Reading, Steady};
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, OptionalExtension as _};

use crate::error::Failure;

/// The clocks of a machine.
pub trait MachineClock: Send + Sync + 'static {
    /// Returns the time of day. It may be set to any other time.
    fn now(&self) -> Timestamp;

    /// Returns the time since an arbitrary origin, which can't be set.
    fn elapsed(&self) -> Duration;
}

impl fmt::Debug for dyn MachineClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// The clocks of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine;

impl MachineClock for Machine {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn elapsed(&self) -> Duration {
        static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
        BEGUN.elapsed()
    }
}

/// The store's time, as this process knows it.
#[derive(Debug)]
pub(crate) struct StoreClock {
    clock: Arc<dyn MachineClock>,
    steady: Mutex<Steady>,
}

impl StoreClock {
    pub(crate) fn new(clock: Arc<dyn MachineClock>) -> Arc<Self> {
        Arc::new(Self { clock, steady: Mutex::default() })
    }

    fn steady(&self) -> MutexGuard<'_, Steady> {
        self.steady.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, kept: Option<i64>) -> Reading {
        let mut steady = self.steady();
        let before = steady.step();
        let reading = steady.read(self.clock.now().as_microsecond(), self.clock.elapsed(), kept);
        if let Some(ClockStep { by, .. }) = steady.step().filter(|step| Some(*step) != before) {
            tracing::warn!(
                microseconds = by,
                "this machine's clock was set; leases and waits continue unchanged"
            );
        }
        reading
    }

    /// Registers the functions that read the time on a connection.
    pub(crate) fn install(self: &Arc<Self>, connection: &Connection) -> rusqlite::Result<()> {
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DIRECTONLY;
        let this = Arc::clone(self);
        connection.create_scalar_function("leftfold_clock", 1, flags, move |context| {
            let kept = context.get_raw(0).as_str_or_null()?.and_then(|text| text.parse().ok());
            let Reading { time, wall } = this.read(kept);
            Ok(format!("{time} {wall}"))
        })?;
        let this = Arc::clone(self);
        connection.create_scalar_function("leftfold_clock_step", 0, flags, move |_| {
            Ok(this.steady().step().map(|ClockStep { by, at }| format!("{by} {at}")))
        })
    }
}

/// Reads the store's time in a file.
pub(crate) fn read(connection: &Connection) -> Result<Reading, Failure> {
    let sql = "SELECT leftfold_clock((SELECT value FROM leftfold_meta WHERE key = 'clock'))";
    let text: String = connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    let (time, wall) = two(&text).ok_or_else(|| Failure::damaged(format!("the clock returned {text:?}")))?;
    Ok(Reading { time, wall })
}

/// Reads the store's time in microseconds.
pub(crate) fn now(connection: &Connection) -> Result<i64, Failure> {
    Ok(read(connection)?.time)
}

/// Returns the last stored step of the machine's clock.
pub(crate) fn step(connection: &Connection) -> Result<Option<ClockStep>, Failure> {
    let sql = "SELECT value FROM leftfold_meta WHERE key = 'clock_step'";
    let text: Option<String> = connection.query_row(sql, [], |row| row.get(0)).optional()?;
    Ok(text.as_deref().and_then(two).map(|(by, at)| ClockStep { by, at }))
}

fn two(text: &str) -> Option<(i64, i64)> {
    let (one, other) = text.split_once(' ')?;
    Some((one.parse().ok()?, other.parse().ok()?))
}

/// Reads the time and stores it in the file, with the last step if there was one.
pub(crate) fn keep(connection: &Connection) -> Result<i64, Failure> {
    let reading = read(connection)?;
    let sql = "INSERT INTO leftfold_meta VALUES ('clock', ?1) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    connection.prepare_cached(sql)?.execute([reading.time.to_string()])?;
    let sql = "INSERT INTO leftfold_meta SELECT 'clock_step', step FROM (SELECT leftfold_clock_step() AS step) \
        WHERE step IS NOT NULL ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    connection.prepare_cached(sql)?.execute([])?;
    Ok(reading.time)
}
