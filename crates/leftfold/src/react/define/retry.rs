//! Retry policies of handlers.

use std::time::Duration;

use cronexpr::Crontab;
use jiff::Timestamp;

use super::every::crontab;
use crate::error::Invalid;
use crate::react::time::later;

/// The retry policy of a handler.
///
/// ```
/// use std::time::Duration;
/// use leftfold::react::Retry;
///
/// let soon_then_slowly = Retry::series([1, 10, 60].map(Duration::from_secs)).attempts(10);
/// let at_night = Retry::cron("0 3 * * * UTC")?.within(Duration::from_hours(72));
/// # Ok::<(), leftfold::Invalid>(())
/// ```
#[derive(Clone, Debug)]
pub struct Retry {
    schedule: Schedule,
    /// The share of each wait that is random, from 0 to 1.
    jitter: f64,
    attempts: Option<u32>,
    within: Option<Duration>,
    pub(crate) reset_on_change: bool,
}

#[derive(Clone, Debug)]
enum Schedule {
    Never,
    Fixed(Duration),
    Linear(Duration),
    Exponential { first: Duration, most: Duration, factor: f64 },
    Series(Vec<Duration>),
    Cron(Box<Crontab>),
}

impl Default for Retry {
    /// Retries after 10 seconds, doubling up to a day, with jitter; five attempts in all.
    fn default() -> Self {
        Self::exponential(Duration::from_secs(10), Duration::from_hours(24)).attempts(5)
    }
}

impl Retry {
    fn new(schedule: Schedule) -> Self {
        Self { schedule, jitter: 0.2, attempts: None, within: None, reset_on_change: true }
    }

    /// Never retries.
    pub fn never() -> Self {
        Self::new(Schedule::Never).attempts(1)
    }

    /// Always waits the same time.
    pub fn fixed(every: Duration) -> Self {
        Self::new(Schedule::Fixed(every))
    }

    /// Waits this long after the first failure, then twice, three times as long, and so on.
    pub fn linear(step: Duration) -> Self {
        Self::new(Schedule::Linear(step))
    }

    /// Waits `first` after the first failure, then doubles the wait up to `most`.
    pub fn exponential(first: Duration, most: Duration) -> Self {
        Self::new(Schedule::Exponential { first, most, factor: 2.0 })
    }

    /// Waits these times, one after the other; the last one repeats.
    pub fn series(waits: impl IntoIterator<Item = Duration>) -> Self {
        Self::new(Schedule::Series(waits.into_iter().collect()))
    }

    /// Retries at the times of a cron expression with a time zone: `0 3 * * * Europe/Vienna`.
    pub fn cron(expression: &str) -> Result<Self, Invalid> {
        Ok(Self::new(Schedule::Cron(Box::new(crontab("cron expression of a retry policy", expression)?)))
            .jitter(0.0))
    }

    /// Sets the factor by which an exponential wait grows; the default is 2.
    #[must_use]
    pub fn factor(mut self, by: f64) -> Self {
        if let Schedule::Exponential { factor, .. } = &mut self.schedule {
            *factor = by;
        }
        self
    }

    /// Sets the share of each wait that is random, from 0 to 1; the default is a fifth. Tasks that
    /// failed together then do not retry together.
    #[must_use]
    pub fn jitter(self, share: f64) -> Self {
        Self { jitter: share, ..self }
    }

    /// Sets the maximum number of attempts, including the first one. Without it, and without
    /// [`within`](Self::within), retries never end.
    #[must_use]
    pub fn attempts(self, most: u32) -> Self {
        Self { attempts: Some(most), ..self }
    }

    /// Allows no attempt later than this after the first failure.
    #[must_use]
    pub fn within(self, duration: Duration) -> Self {
        Self { within: Some(duration), ..self }
    }

    /// Sets whether a change of the document resets the number of attempts; it does by default.
    #[must_use]
    pub fn reset_on_change(self, reset: bool) -> Self {
        Self { reset_on_change: reset, ..self }
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let refuse =
            |field: &'static str, value: String, expected: &str| Err(Invalid::new(field, &value, expected));
        if !(0.0..=1.0).contains(&self.jitter) {
            return refuse("jitter of a retry policy", self.jitter.to_string(), "a share from 0 to 1");
        }
        if self.attempts == Some(0) {
            return refuse(
                "attempts of a retry policy",
                "0".to_owned(),
                "at least 1, because the first attempt counts",
            );
        }
        match &self.schedule {
            Schedule::Series(waits) if waits.is_empty() => {
                refuse("series of a retry policy", "[]".to_owned(), "at least one wait")
            }
            Schedule::Exponential { first, most, .. } if first.is_zero() || first > most => {
                let value = format!("{first:?} to {most:?}");
                refuse(
                    "waits of a retry policy",
                    value,
                    "a first wait above zero, and no longer than the longest wait",
                )
            }
            Schedule::Exponential { factor, .. } if !(1.0..=1_000.0).contains(factor) => {
                refuse("factor of a retry policy", factor.to_string(), "a number from 1 to 1000")
            }
            _ => Ok(()),
        }
    }

    /// Returns whether no attempt is left after this many, if the first failure was at
    /// `first_failed`.
    pub(crate) fn is_spent(&self, attempts: u32, first_failed: Option<Timestamp>, now: Timestamp) -> bool {
        let late = |within| first_failed.is_some_and(|first| later(first, within) <= now);
        self.attempts.is_some_and(|most| attempts >= most) || self.within.is_some_and(late)
    }

    /// Returns the time of the next attempt after the last of `attempts` failed, or `None` if none
    /// is left. `random` is a random number from 0 to 1.
    pub(crate) fn next(
        &self,
        attempts: u32,
        first_failed: Timestamp,
        now: Timestamp,
        random: f64,
    ) -> Option<Timestamp> {
        if self.is_spent(attempts, Some(first_failed), now) {
            return None;
        }
        let step = attempts.max(1);
        let wait = match &self.schedule {
            Schedule::Never => return None,
            Schedule::Fixed(every) => *every,
            Schedule::Linear(every) => every.saturating_mul(step),
            Schedule::Exponential { first, most, factor } => {
                let exponent = i32::try_from(step - 1).unwrap_or(i32::MAX);
                let grown = first.as_secs_f64() * factor.powi(exponent);
                Duration::try_from_secs_f64(grown).map_or(*most, |grown| grown.min(*most))
            }
            Schedule::Series(waits) => {
                let at = usize::try_from(step - 1).unwrap_or(usize::MAX).min(waits.len().checked_sub(1)?);
                waits[at]
            }
            Schedule::Cron(times) => {
                let next = times.find_next(now).ok()?.timestamp();
                return Some(later(next, self.spread(Duration::from_mins(1), random)));
            }
        };
        Some(later(now, wait.saturating_sub(self.spread(wait, random))))
    }

    /// Returns the random part of a wait.
    fn spread(&self, wait: Duration, random: f64) -> Duration {
        wait.mul_f64((self.jitter * random).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    /// Returns the waits after each failure, in seconds.
    fn waits(retry: &Retry, count: u32, random: f64) -> Vec<Option<i64>> {
        let next = |attempts| retry.next(attempts, NOW, NOW, random);
        (1..=count).map(|attempts| next(attempts).map(|at| at.as_second() - NOW.as_second())).collect()
    }

    #[test]
    fn each_schedule_waits_as_it_says() {
        let seconds = Duration::from_secs;
        let cases = [
            (Retry::fixed(seconds(5)).attempts(4), vec![Some(5), Some(5), Some(5), None]),
            (Retry::linear(seconds(5)), vec![Some(5), Some(10), Some(15), Some(20)]),
            (Retry::exponential(seconds(10), seconds(50)), vec![Some(10), Some(20), Some(40), Some(50)]),
            (
                Retry::exponential(seconds(1), seconds(50)).factor(3.0),
                vec![Some(1), Some(3), Some(9), Some(27)],
            ),
            (Retry::series([seconds(1), seconds(7)]), vec![Some(1), Some(7), Some(7), Some(7)]),
            (Retry::never(), vec![None; 4]),
        ];
        for (retry, expected) in cases {
            assert_eq!(waits(&retry.clone().jitter(0.0), 4, 0.7), expected, "{retry:?}");
        }
        // The start, `NOW`, is 2027-01-15 08:00:00 UTC.
        let nightly = Retry::cron("30 3 * * * UTC").unwrap();
        assert_eq!(waits(&nightly, 2, 0.5), [Some(70_200), Some(70_200)]);
        assert_eq!(waits(&Retry::default(), 5, 0.0), [Some(10), Some(20), Some(40), Some(80), None]);
    }

    #[test]
    fn jitter_shortens_and_duration_ends() {
        let retry = Retry::fixed(Duration::from_secs(100)).jitter(0.5);
        assert_eq!((waits(&retry, 1, 0.0), waits(&retry, 1, 1.0)), (vec![Some(100)], vec![Some(50)]));
        let within = retry.within(Duration::from_mins(1));
        assert!(within.next(1, NOW, later(NOW, Duration::from_secs(59)), 0.0).is_some());
        assert!(within.next(1, NOW, later(NOW, Duration::from_mins(1)), 0.0).is_none());
    }

    #[test]
    fn what_can_not_work_is_refused() {
        let seconds = Duration::from_secs;
        let refused = [
            Retry::series([]),
            Retry::fixed(seconds(1)).attempts(0),
            Retry::fixed(seconds(1)).jitter(1.5),
            Retry::exponential(seconds(9), seconds(1)),
            Retry::exponential(seconds(1), seconds(9)).factor(0.5),
        ];
        for retry in refused {
            assert!(retry.check().is_err(), "{retry:?}");
        }
        assert!(Retry::default().check().is_ok());
        let error = Retry::cron("every night").unwrap_err().to_string();
        assert!(error.contains("every night") && error.contains("0 3 * * * UTC"), "{error}");
    }
}
