//! The store's time, which never goes back, whatever becomes of the machine's clock.
//!
//! Leases and due times are compared with it. It follows the machine's clock when that goes forward. When the machine's clock is set back, it
//! goes on from where it was, a tenth slower, until the machine's clock has caught up with it. So a wait takes as long as it was meant to,
//! or up to a ninth longer. Every lease keeps the time in the file: other processes, and those that come after a restart, go on from there.

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, OptionalExtension as _};

use crate::error::Failure;

/// The clocks of a machine.
pub trait Clock: Send + Sync + 'static {
    /// The time of day. It may be set to any other time.
    fn now(&self) -> Timestamp;

    /// The time since some moment, which nobody can set.
    fn elapsed(&self) -> Duration;
}

impl fmt::Debug for dyn Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// The clocks of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine;

impl Clock for Machine {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn elapsed(&self) -> Duration {
        static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
        BEGUN.elapsed()
    }
}

/// A moment, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The store's time.
    pub(crate) time: i64,
    /// The time of day of the machine.
    pub(crate) wall: i64,
}

impl Reading {
    /// How far the store's time is ahead of the time of day.
    pub(crate) fn ahead(self) -> Duration {
        Duration::from_micros(u64::try_from(self.time.saturating_sub(self.wall)).unwrap_or(0))
    }

    /// The store's time after so many microseconds, which the machine's clock says are over at this time of day.
    fn after(self, elapsed: i64, wall: i64) -> Self {
        let slower = if self.time > self.wall { elapsed / 10 } else { 0 };
        let time = self.time.saturating_add(elapsed - slower).max(wall);
        Self { time, wall }
    }
}

/// A step of the machine's clock, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// How far it went, beyond the time that had passed; below zero if it went back.
    pub(crate) by: i64,
    /// The store's time of the step.
    pub(crate) at: i64,
}

/// Clocks that are adjusted all the time differ by less.
const STEP: i64 = 1_000_000;

/// The store's time, as one process knows it.
#[derive(Debug)]
pub(crate) struct Steady {
    clock: Arc<dyn Clock>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The last reading, and what had elapsed by then.
    last: Option<(Reading, Duration)>,
    /// The last step that was seen here.
    step: Option<Step>,
}

impl Steady {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, known: Mutex::default() })
    }

    /// The time now. It is not before the time that is kept in the file.
    pub(crate) fn read(&self, kept: Option<i64>) -> Reading {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (wall, elapsed) = (self.clock.now().as_microsecond(), self.clock.elapsed());
        let mut now = Reading { time: wall, wall };
        if let Some((reading, then)) = known.last {
            let since = i64::try_from(elapsed.saturating_sub(then).as_micros()).unwrap_or(i64::MAX);
            now = reading.after(since, wall);
            let by = wall.saturating_sub(reading.wall).saturating_sub(since);
            if by.abs() > STEP {
                tracing::warn!(
                    microseconds = by,
                    "the clock of this machine was set; waits go on as they were"
                );
                known.step = Some(Step { by, at: now.time });
            }
        }
        now.time = now.time.max(kept.unwrap_or(now.time));
        known.last = Some((now, elapsed));
        now
    }

    fn step(&self) -> Option<Step> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).step
    }

    /// Makes the time known to a connection.
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
            Ok(this.step().map(|Step { by, at }| format!("{by} {at}")))
        })
    }
}

/// The time in a file.
pub(crate) fn read(connection: &Connection) -> Result<Reading, Failure> {
    let sql = "SELECT leftfold_clock((SELECT value FROM leftfold_meta WHERE key = 'clock'))";
    let text: String = connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    let (time, wall) = two(&text).ok_or_else(|| Failure::damaged(format!("the clock says {text:?}")))?;
    Ok(Reading { time, wall })
}

/// The same in microseconds.
pub(crate) fn now(connection: &Connection) -> Result<i64, Failure> {
    Ok(read(connection)?.time)
}

/// The last step of the machine's clock that a process has seen and kept.
pub(crate) fn step(connection: &Connection) -> Result<Option<Step>, Failure> {
    let sql = "SELECT value FROM leftfold_meta WHERE key = 'clock_step'";
    let text: Option<String> = connection.query_row(sql, [], |row| row.get(0)).optional()?;
    Ok(text.as_deref().and_then(two).map(|(by, at)| Step { by, at }))
}

fn two(text: &str) -> Option<(i64, i64)> {
    let (one, other) = text.split_once(' ')?;
    Some((one.parse().ok()?, other.parse().ok()?))
}

/// Reads the time and keeps it in the file, with the last step if there was one.
pub(crate) fn keep(connection: &Connection) -> Result<i64, Failure> {
    let reading = read(connection)?;
    let sql = "INSERT INTO leftfold_meta VALUES ('clock', ?1) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    connection.prepare_cached(sql)?.execute([reading.time.to_string()])?;
    let sql = "INSERT INTO leftfold_meta SELECT 'clock_step', step FROM (SELECT leftfold_clock_step() AS step) \
        WHERE step IS NOT NULL ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    connection.prepare_cached(sql)?.execute([])?;
    Ok(reading.time)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    const SECOND: i64 = 1_000_000;
    const HOUR: i64 = 3_600 * SECOND;

    /// A clock that is set, beside one that can't be.
    #[derive(Default)]
    struct Set {
        wall: AtomicI64,
        elapsed: AtomicI64,
    }

    impl Set {
        fn pass(&self, micros: i64) {
            self.wall.fetch_add(micros, Ordering::Relaxed);
            self.elapsed.fetch_add(micros, Ordering::Relaxed);
        }

        fn step(&self, micros: i64) {
            self.wall.fetch_add(micros, Ordering::Relaxed);
        }
    }

    impl Clock for Set {
        fn now(&self) -> Timestamp {
            Timestamp::from_microsecond(self.wall.load(Ordering::Relaxed)).unwrap()
        }

        fn elapsed(&self) -> Duration {
            Duration::from_micros(self.elapsed.load(Ordering::Relaxed).unsigned_abs())
        }
    }

    fn set() -> (Arc<Set>, Arc<Steady>) {
        let set = Arc::new(Set::default());
        set.pass(1_000 * HOUR);
        (Arc::clone(&set), Steady::new(set))
    }

    #[test]
    fn it_follows_a_clock_that_nobody_sets() {
        let (set, steady) = set();
        for _ in 0..100 {
            set.pass(SECOND);
            let reading = steady.read(None);
            assert_eq!((reading.time, reading.ahead()), (reading.wall, Duration::ZERO));
        }
    }

    #[test]
    fn it_goes_on_when_the_clock_is_set_back_and_lets_it_catch_up() {
        let (set, steady) = set();
        let before = steady.read(None);
        set.step(-6 * HOUR);
        assert_eq!(steady.read(None).time, before.time);
        for minute in 1..=60 {
            set.pass(60 * SECOND);
            assert_eq!(steady.read(None).time, before.time + minute * 54 * SECOND, "a tenth slower");
        }
        set.pass(60 * HOUR);
        let after = steady.read(None);
        set.pass(SECOND);
        assert!(after.ahead() <= Duration::from_secs(1), "it has caught up: {after:?}");
        assert_eq!(steady.read(None).ahead(), Duration::ZERO);
    }

    #[test]
    fn there_and_back_it_never_goes_back() {
        let (set, steady) = set();
        let mut last = steady.read(None).time;
        for step in [6 * HOUR, 0, -6 * HOUR, 0, -6 * HOUR, 6 * HOUR, 0] {
            set.step(step);
            set.pass(10 * SECOND);
            let now = steady.read(None).time;
            assert!(now - last >= 9 * SECOND, "{step}: it went on by {} µs", now - last);
            last = now;
        }
    }

    #[test]
    fn processes_agree_and_restarts_go_on() {
        let (set, steady) = set();
        let other = Steady::new(Arc::clone(&set) as Arc<dyn Clock>);
        other.read(None);
        // One of them is asleep while the clock is wrong.
        set.step(6 * HOUR);
        let kept = steady.read(None);
        set.step(-6 * HOUR);
        set.pass(SECOND);
        let (one, two) = (steady.read(Some(kept.time)), other.read(Some(kept.time)));
        assert!(one.time.abs_diff(two.time) <= SECOND.unsigned_abs(), "{one:?} {two:?}");
        // Nobody runs for a while, and the clock is set back, or is right again.
        for step in [-12 * HOUR, 12 * HOUR] {
            set.step(step);
            let restarted = Steady::new(Arc::clone(&set) as Arc<dyn Clock>).read(Some(one.time));
            assert_eq!(restarted.time, one.time);
        }
        set.pass(100 * HOUR);
        let restarted = Steady::new(Arc::clone(&set) as Arc<dyn Clock>).read(Some(one.time));
        assert_eq!(restarted.ahead(), Duration::ZERO);
    }
}
