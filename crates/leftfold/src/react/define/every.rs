//! The schedules of recurring reactions.

use std::time::Duration;

use cronexpr::Crontab;
use jiff::Timestamp;

use crate::error::Invalid;
use crate::react::time::later;

/// The schedule of a recurring reaction.
///
/// ```
/// use std::time::Duration;
/// use leftfold::react::Every;
///
/// let often = Every::interval(Duration::from_mins(5))?;
/// let at_night = Every::cron("0 3 * * * Europe/Vienna")?;
/// # Ok::<(), leftfold::Invalid>(())
/// ```
#[derive(Clone, Debug)]
pub struct Every(Times);

#[derive(Clone, Debug)]
enum Times {
    Interval(Duration),
    Cron { times: Box<Crontab>, text: String },
}

impl Every {
    /// Repeats this long after the last run; at least one millisecond.
    pub fn interval(interval: Duration) -> Result<Self, Invalid> {
        if interval < Duration::from_millis(1) {
            return Err(Invalid::new("interval", &format!("{interval:?}"), "at least a millisecond"));
        }
        Ok(Self(Times::Interval(interval)))
    }

    /// Repeats at the times of a cron expression with a time zone: `0 3 * * * Europe/Vienna`.
    pub fn cron(expression: &str) -> Result<Self, Invalid> {
        let times = Box::new(crontab("cron expression", expression)?);
        Ok(Self(Times::Cron { times, text: expression.to_owned() }))
    }

    /// Returns the next time after this one.
    pub(crate) fn next(&self, after: Timestamp) -> Timestamp {
        match &self.0 {
            Times::Interval(interval) => later(after, *interval),
            Times::Cron { times, .. } => {
                times.find_next(after).map_or(Timestamp::MAX, |next| next.timestamp())
            }
        }
    }

    /// Returns a text that identifies the schedule.
    pub(crate) fn text(&self) -> String {
        match &self.0 {
            Times::Interval(interval) => format!("{interval:?}"),
            Times::Cron { text, .. } => text.clone(),
        }
    }
}

/// Parses a cron expression.
pub(crate) fn crontab(field: &'static str, expression: &str) -> Result<Crontab, Invalid> {
    cronexpr::parse_crontab(expression).map_err(|error| {
        let expected = format!("five fields and a time zone, such as \"0 3 * * * UTC\": {error}");
        Invalid::new(field, expression, expected)
    })
}
