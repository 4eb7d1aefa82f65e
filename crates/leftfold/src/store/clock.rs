//! The time of a store, which never goes back, even if the underlying clock does.

use std::time::Duration;

/// The smallest jump that counts as a step, in microseconds. Continuous adjustments of clocks are
/// smaller.
const STEP: i64 = 1_000_000;

/// A point in time, in microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The store's time.
    pub time: i64,
    /// The time of day according to the clock.
    pub wall: i64,
}

impl Reading {
    /// Returns the time by which the store's time is ahead of the time of day.
    pub fn ahead(self) -> Duration {
        Duration::from_micros(u64::try_from(self.time.saturating_sub(self.wall)).unwrap_or(0))
    }

    /// Returns the store's time after `elapsed` microseconds, when the clock shows `wall`.
    fn after(self, elapsed: i64, wall: i64) -> Self {
        let slower = if self.time > self.wall { elapsed / 10 } else { 0 };
        let time = self.time.saturating_add(elapsed - slower).max(wall);
        Self { time, wall }
    }
}

/// A step of a clock, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockStep {
    /// The size of the step beyond the time that had passed; negative if the clock went back.
    pub by: i64,
    /// The store's time of the step.
    pub at: i64,
}

/// The time of a store, as one process knows it. Stores compare leases and due times with it.
///
/// It follows the clock forward. When the clock is set back, it continues from its last time, a
/// tenth slower, until the clock has caught up. A wait therefore takes as long as intended, or up
/// to a ninth longer. A store keeps the time, so that other processes, and those after a restart,
/// continue from there.
///
/// ```
/// use std::time::Duration;
/// use leftfold::store::clock::Steady;
///
/// let mut steady = Steady::default();
/// let (noon, second) = (43_200_000_000, 1_000_000);
/// assert_eq!(steady.read(noon, Duration::ZERO, None).time, noon);
/// // Ten seconds later the clock was set back by an hour.
/// let later = steady.read(noon - 3_590 * second, Duration::from_secs(10), None);
/// assert_eq!(later.time, noon + 10 * second);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Steady {
    /// The last reading, and the elapsed time by then.
    last: Option<(Reading, Duration)>,
    step: Option<ClockStep>,
}

impl Steady {
    /// Returns the current time, from the time of day and the elapsed time of a monotonic clock. It
    /// is never before the time that the store keeps.
    pub fn read(&mut self, wall: i64, elapsed: Duration, kept: Option<i64>) -> Reading {
        let mut now = Reading { time: wall, wall };
        if let Some((reading, then)) = self.last {
            let since = i64::try_from(elapsed.saturating_sub(then).as_micros()).unwrap_or(i64::MAX);
            now = reading.after(since, wall);
            let by = wall.saturating_sub(reading.wall).saturating_sub(since);
            if by.abs() > STEP {
                self.step = Some(ClockStep { by, at: now.time });
            }
        }
        now.time = now.time.max(kept.unwrap_or(now.time));
        self.last = Some((now, elapsed));
        now
    }

    /// Returns the last reading.
    pub fn last(&self) -> Option<Reading> {
        self.last.map(|(reading, _)| reading)
    }

    /// Returns the last step that this process has seen.
    pub fn step(&self) -> Option<ClockStep> {
        self.step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const HOUR: i64 = 3_600 * SECOND;

    /// A clock that can be set, beside a monotonic one.
    #[derive(Clone, Copy)]
    struct Clocks {
        wall: i64,
        elapsed: i64,
    }

    impl Clocks {
        fn new() -> Self {
            Self { wall: 1_000 * HOUR, elapsed: 0 }
        }

        fn pass(&mut self, micros: i64) {
            self.wall += micros;
            self.elapsed += micros;
        }

        fn read(self, steady: &mut Steady, kept: Option<i64>) -> Reading {
            steady.read(self.wall, Duration::from_micros(self.elapsed.unsigned_abs()), kept)
        }
    }

    #[test]
    fn it_follows_a_clock_that_nobody_sets() {
        let (mut clocks, mut steady) = (Clocks::new(), Steady::default());
        for _ in 0..100 {
            clocks.pass(SECOND);
            let reading = clocks.read(&mut steady, None);
            assert_eq!((reading.time, reading.ahead()), (reading.wall, Duration::ZERO));
        }
        assert_eq!(steady.step(), None);
    }

    #[test]
    fn it_goes_on_when_the_clock_is_set_back_and_lets_it_catch_up() {
        let (mut clocks, mut steady) = (Clocks::new(), Steady::default());
        let before = clocks.read(&mut steady, None);
        clocks.wall -= 6 * HOUR;
        assert_eq!(clocks.read(&mut steady, None).time, before.time);
        assert_eq!(steady.step(), Some(ClockStep { by: -6 * HOUR, at: before.time }));
        for minute in 1..=60 {
            clocks.pass(60 * SECOND);
            let now = clocks.read(&mut steady, None);
            assert_eq!(now.time, before.time + minute * 54 * SECOND, "a tenth slower");
        }
        clocks.pass(60 * HOUR);
        assert!(clocks.read(&mut steady, None).ahead() <= Duration::from_secs(1), "it has caught up");
        clocks.pass(SECOND);
        assert_eq!(clocks.read(&mut steady, None).ahead(), Duration::ZERO);
    }

    #[test]
    fn there_and_back_it_never_goes_back() {
        let (mut clocks, mut steady) = (Clocks::new(), Steady::default());
        let mut last = clocks.read(&mut steady, None).time;
        for step in [6 * HOUR, 0, -6 * HOUR, 0, -6 * HOUR, 6 * HOUR, 0] {
            clocks.wall += step;
            clocks.pass(10 * SECOND);
            let now = clocks.read(&mut steady, None).time;
            assert!(now - last >= 9 * SECOND, "{step}: it went on by {} µs", now - last);
            last = now;
        }
    }

    #[test]
    fn processes_agree_and_restarts_go_on() {
        let (mut clocks, mut steady, mut other) = (Clocks::new(), Steady::default(), Steady::default());
        clocks.read(&mut other, None);
        // One of them sleeps while the clock is wrong.
        clocks.wall += 6 * HOUR;
        let kept = clocks.read(&mut steady, None).time;
        clocks.wall -= 6 * HOUR;
        clocks.pass(SECOND);
        let (one, two) = (clocks.read(&mut steady, Some(kept)), clocks.read(&mut other, Some(kept)));
        assert!(one.time.abs_diff(two.time) <= SECOND.unsigned_abs(), "{one:?} {two:?}");
        // No process runs for a while, and the clock is set back, or is right again.
        for step in [-12 * HOUR, 12 * HOUR] {
            clocks.wall += step;
            assert_eq!(clocks.read(&mut Steady::default(), Some(one.time)).time, one.time);
        }
        clocks.pass(100 * HOUR);
        assert_eq!(clocks.read(&mut Steady::default(), Some(one.time)).ahead(), Duration::ZERO);
    }
}
